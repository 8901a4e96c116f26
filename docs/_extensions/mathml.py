"""Formulas as MathML, made here: browsers draw it by themselves, so that the site needs neither a script nor a host."""

from docutils.utils.math.latex2mathml import tex2mathml


def _inline(writer, node):
    writer.body.append(tex2mathml(node.astext(), as_block=False))
    raise _skip()


def _block(writer, node):
    writer.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise _skip()


def _skip():
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app):
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
