"""Parts of the reference that the program itself tells: its commands and its HTTP routes.

A page has `<!-- commands -->` or `<!-- routes -->` in it, and Markdown takes its place when the page is read.
"""

import re
import tempfile
from pathlib import Path

HIDDEN = {"--help"}
ERRORS = "ErrorAnswer"  # the schema of all errors


def fill(app, name, source):
    for mark, write in (("<!-- commands -->", commands), ("<!-- routes -->", routes)):
        if mark in source[0]:
            source[0] = source[0].replace(mark, write())


def plain(text):
    """Text that Markdown shows as it is, but for what stands between backquotes."""
    parts = " ".join(text.split()).split("`")
    parts[::2] = [re.sub(r"([\\*_<>\[\]|$])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def commands():
    import typer

    from gphash.cli.main import app

    return "\n".join(_command(name, one) for name, one in typer.main.get_command(app).commands.items())


def _command(name, command):
    context = command.context_class(command, info_name=f"gphash {name}")
    usage = command.get_usage(context).removeprefix("Usage: ")
    lines = [f"## gphash {name}\n", *(f"{plain(part)}\n" for part in command.help.split("\n\n"))]
    lines += [f"```text\n{' '.join(usage.split())}\n```\n"]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and not HIDDEN & set(parameter.opts):
            lines.append(f"`{record[0]}`\n: {plain(record[1]) or 'As its name says.'}\n")
    examples = [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")]
    return "\n".join([*lines, "```console", *(f"$ {line}" for line in examples), "```\n"] if examples else lines)


def schema():
    """The OpenAPI schema of a service that may be written to; a collection of four numbers a row stands for any."""
    import numpy as np

    from gphash import Collection
    from gphash.hashers import LSH
    from gphash.server.service import create_app
    from gphash.server.settings import ServiceSettings

    with tempfile.TemporaryDirectory() as folder:
        path, X = Path(folder, "any.gphash"), np.eye(4)
        Collection.create(path, LSH(8, random_state=0).fit(X), X).close()
        app = create_app(path, ServiceSettings(writable=True))
        app.state.service.shelf.collection.close()
        return app.openapi()


def routes():
    described = schema()
    schemas = described["components"]["schemas"]
    parts = [
        _route(path, method.upper(), operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    parts.append("## What answers hold\n")
    for name, one in schemas.items():
        said = plain(one.get("description", ""))
        parts.append(f"({_anchor(name)})=\n### {name}\n\n{said}\n\n{_fields(one, answer=True)}")
    return "\n".join(parts)


def _route(path, method, operation):
    lines = [f"## {method} {plain(path)}\n", f"{plain(operation.get('description', operation['summary']))}\n"]
    given = {one["name"]: one["schema"] | {"description": one.get("description", "")}
             for one in operation.get("parameters", [])}  # fmt: skip
    if given:
        lines.append(_fields({"properties": given}, " in the address"))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        lines += [f"**A body of `{kind}`**\n", _fields(content["schema"])]
    right, wrong = [], []
    for status, response in operation["responses"].items():
        names = [one["schema"].get("$ref", "").rpartition("/")[2] for one in response.get("content", {}).values()]
        if ERRORS in names:
            wrong.append(status)
        else:
            kinds = ", ".join(f"`{kind}`" for kind in response.get("content", {})) or "nothing"
            links = [f"[{name}](#{_anchor(name)})" for name in names if name]
            right.append(f"`{status}` with {', '.join(links) or kinds}")
    lines.append(f"Answers {'; '.join(right)}." + (f" Errors: {', '.join(wrong)}.\n" if wrong else "\n"))
    return "\n".join(lines)


def _anchor(name):
    return "answer-" + re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _fields(one, where="", *, answer=False):
    required, lines = set(one.get("required", [])), []
    for name, field in one.get("properties", {}).items():
        said = plain(field.get("description", ""))
        kind = _kind(field) + (", required" if name in required and not answer else "") + where
        default = f" Default: `{field['default']}`." if field.get("default") not in (None, []) else ""
        lines.append(f"- `{name}` ({kind})" + (f": {said}." if said else "") + default)
    return "\n".join(lines) + "\n"


def _kind(field):
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{_anchor(name)})"
    if kinds := field.get("anyOf") or field.get("oneOf"):
        return " or ".join(dict.fromkeys(_kind(kind) for kind in kinds))
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {_kind(field.get('items', {}))}"
    if field.get("format") == "binary":
        return "file"
    return {"integer": "whole number", "string": "text", "object": "object", None: "any"}.get(
        field.get("type"), str(field.get("type"))
    )


def setup(app):
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
