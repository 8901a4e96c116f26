"""How Sphinx makes the site of these pages; `make docs` runs it."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent / "src")]
os.environ.setdefault("MPLBACKEND", "agg")

from gphash.version import __version__  # noqa: E402

project = "gphash"
author = "the gphash developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "from_the_program",
    "mathml",
    "outside",
    "whole",
]
exclude_patterns = ["_extensions", "gallery/**/*.ipynb", "gallery/**/*.py", "gallery/**/*.md5", "gallery/**/*.json"]
exclude_patterns += ["gallery/**/*.zip", "gallery/**/*.codeobj*"]
templates_path = ["_templates"]

# Pages are Markdown. Anchors are as GitHub makes them, so that links work there as well.
myst_enable_extensions = ["deflist", "dollarmath", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4

# Names. Whatever of gphash is named and is in the reference becomes a link; names of other packages need no network.
default_role = "py:obj"
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!gphash\.).*"), (r"py:(class|data|func|meth|attr)", r"gphash\..*")]
nitpick_ignore = [("py:obj", "gphash.registry.T"), ("py:obj", "gphash.data.known.data_sets")]
autosummary_generate = True
# Extras that the reference can do without.
autodoc_mock_imports = ["cv2", "dask", "distributed", "onnx", "onnxruntime", "tokenizers", "zarr"]
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 1000,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib", "drawn"),
    "image_srcset": ["2x"],
    "reference_url": {"gphash": None},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "pydata_sphinx_theme"
html_title = f"gphash {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_sidebars = {page: [] for page in ("index", "start", "method", "figures", "questions")}  # they have no sub-pages
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "logo": {"text": "gphash"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def is_theirs(app, what, name, obj, skip, options):
    """Leave out what scikit-learn gives every estimator for routing metadata; its own manual explains it."""
    return skip or name == "set_output" or name.endswith(("_request", "_metadata_routing"))


def setup(app):
    app.connect("autodoc-skip-member", is_theirs)
