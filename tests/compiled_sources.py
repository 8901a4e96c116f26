"""Which files numba's compiled code depends on, read off their syntax: a cache is as good as its key.

numba watches the file that a compiled function stands in, and no other: neither those of the compiled functions that
it calls, nor those that its constants come from.
"""

import ast
import hashlib
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
COMPILER = "gphash.compiled"


def state(source: Path = SOURCE) -> str:
    """A name for the state of all compiled functions: another one whenever something that they are made of changes."""
    mark = hashlib.sha256()
    for path in files(source):
        mark.update(path.relative_to(source).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return mark.hexdigest()[:16]


def files(source: Path = SOURCE) -> list[Path]:
    """The compiler, the files that import it, and those that their compiled functions have names from."""
    found = {_path(source, COMPILER)}
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if COMPILER in text:
            found |= {path, *_origins(ast.parse(text), source)}
    return sorted(path for path in found if path is not None)


def _origins(tree: ast.Module, source: Path) -> set[Path | None]:
    """Files that a module's decorated functions, of which some are compiled, have names from."""
    decorated = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.decorator_list]
    used = {node.id for function in decorated for node in ast.walk(function) if isinstance(node, ast.Name)}
    return {
        _path(source, f"{statement.module}.{alias.name}") or _path(source, statement.module)
        for statement in ast.walk(tree)
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
        if (alias.asname or alias.name) in used
    }


def _path(source: Path, module: str) -> Path | None:
    place = source.joinpath(*module.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
