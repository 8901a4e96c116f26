"""The rules of the house, read off the syntax of every module; nothing is imported."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = "gphash"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE

# From the bottom up: a package may import from those before it, never from those after it.
ORDER = [
    *("version", "arrays", "compiled", "files", "container", "schema", "registry"),
    *("codes", "supervision", "execution", "data", "cluster", "evaluation", "method", "functions", "index"),
    *("hashers", "collection", "paper", "server", "cli", "__main__"),
]
HEIGHT = {part: height for height, part in enumerate(ORDER)}

# Packages that only some need are imported in one place: one module, or the part of the package that is made of them.
OPTIONAL = {
    "matplotlib",
    "jinja2",
    "PIL",
    "cv2",
    "faiss",
    "pooch",
    "pyarrow",
    "zarr",
    "onnx",
    "onnxruntime",
    "tokenizers",
}
OPTIONAL |= {"dask", "distributed", "psycopg", "psycopg_pool", "onnxruntime", "tokenizers"}
HOMES = {"typer": "cli", "rich": "cli", "click": "cli"} | dict.fromkeys(
    ("fastapi", "starlette", "pydantic", "uvicorn", "prometheus_client", "python_multipart", "orjson"), "server"
)
FORBIDDEN_IMPORTS = {"pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib.dump", "joblib.load"}
FORBIDDEN_CALLS = {"os.system", "os.popen", "joblib.dump", "joblib.load", "eval", "exec"}
GATHERED = {"hashers"}  # sub-packages whose classes users import from its root
FORBIDDEN_NAMES = {"utils", "helpers", "common", "base", "core", "misc"}

LONGEST_MODULE, LONGEST_FUNCTION = 450, 60  # lines
EDGES = {"server", "cli"}  # their modules may be called as those of the library that they show


class Module:
    """A file of the package, its dotted name without the package's, and its syntax."""

    def __init__(self, path: Path, root: Path):
        self.path = path
        parts = path.relative_to(root).with_suffix("").parts
        self.is_init = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_init else parts)
        self.part = self.name.split(".")[0]
        text = path.read_text(encoding="utf-8")
        self.tree, self.length = ast.parse(text), len(text.splitlines())

    def imports(self) -> Iterator[str]:
        """Every imported dotted name; `from a import b` is a.b. Those inside functions count as well."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                prefix = "." * node.level + (node.module or "")
                yield from (f"{prefix}.{alias.name}" for alias in node.names)

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield ast.unparse(node.func), node


def modules(root: Path) -> dict[str, Module]:
    found = (Module(path, root) for path in sorted(root.rglob("*.py")))
    return {module.name: module for module in found}


def internal_imports(module: Module, known: dict[str, Module]) -> Iterator[str]:
    """The modules of the package that a module imports; "" is the package itself."""
    for name in module.imports():
        first, _, rest = name.partition(".")
        if first == PACKAGE:
            # `from gphash.a import b`: b is a module or a name defined in a.
            yield rest if rest in known else rest.rpartition(".")[0]


def faults_of_layers(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        if module.name and module.part not in HEIGHT:
            yield f"{module.name}: {module.part!r} has no place in ORDER"
        for target in internal_imports(module, known):
            part = target.split(".")[0]
            if not target:
                yield f"{module.name} imports from the package's root"
            elif target not in known:
                yield f"{module.name} imports {target}, which does not exist"
            elif module.name and HEIGHT.get(part, 99) > HEIGHT.get(module.part, 99):
                yield f"{module.name} imports {target} from above"


def faults_of_cycles(known: dict[str, Module]) -> Iterator[str]:
    graph = {module.name: set(internal_imports(module, known)) for module in known.values() if module.name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield "cycle: " + " → ".join(error.args[1])


def faults_of_imports(known: dict[str, Module]) -> Iterator[str]:
    users: dict[str, set[str]] = {}
    for module in known.values():
        for name in module.imports():
            if name.startswith("."):
                yield f"{module.name} imports {name} relatively"
            if name.split(".")[0] in FORBIDDEN_IMPORTS or name in FORBIDDEN_IMPORTS:
                yield f"{module.name} imports {name}"
            if (package := name.split(".")[0]) in OPTIONAL:
                users.setdefault(package, set()).add(module.name)
            if package in HOMES and module.part != HOMES[package]:
                yield f"{module.name} imports {package}, which belongs in {HOMES[package]}"
    for package, names in users.items():
        if len(names) > 1:
            yield f"{package} is imported in {', '.join(sorted(names))}; one module should hold it"


def faults_of_files(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        if not ast.get_docstring(module.tree):
            yield f"{module.name or PACKAGE} has no docstring"
        if FORBIDDEN_NAMES & set(module.name.split(".")):
            yield f"{module.name}: the name says nothing"
        if module.is_init and module.name:
            allowed = {ast.ImportFrom, ast.FunctionDef} if module.name in GATHERED else set()
            if {type(node) for node in module.tree.body[1:]} - allowed:
                yield f"{module.name}.__init__ holds more than a docstring"


def faults_of_calls(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        for function, call in module.calls():
            if function == "print" and module.part not in {"cli", "__main__"}:
                yield f"{module.name}:{call.lineno} prints"
            if function in FORBIDDEN_CALLS:
                yield f"{module.name}:{call.lineno} calls {function}"
            if any(word.arg == "shell" and ast.unparse(word.value) != "False" for word in call.keywords):
                yield f"{module.name}:{call.lineno} starts a shell"
            if any(word.arg == "allow_pickle" and ast.unparse(word.value) != "False" for word in call.keywords):
                yield f"{module.name}:{call.lineno} allows pickle"


def faults_of_names(known: dict[str, Module]) -> Iterator[str]:
    """One word, one meaning: a class or a module of some name is there once."""
    homes: dict[str, list[str]] = {}
    for module in known.values():
        if not module.is_init and module.part not in EDGES:
            homes.setdefault(f"module {module.path.stem}", []).append(module.name)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(f"class {node.name}", []).append(module.name)
    for thing, names in homes.items():
        if len(names) > 1:
            yield f"{thing} is there twice: {', '.join(names)}"


def faults_of_length(known: dict[str, Module]) -> Iterator[str]:
    for module in known.values():
        if module.length > LONGEST_MODULE:
            yield f"{module.name} has {module.length} lines; it may have {LONGEST_MODULE}"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    yield f"{module.name}.{node.name} has {length} lines; it may have {LONGEST_FUNCTION}"


RULES = [faults_of_layers, faults_of_cycles, faults_of_imports, faults_of_files, faults_of_calls]
RULES += [faults_of_names, faults_of_length]


@pytest.fixture(scope="module")
def known():
    return modules(SOURCE)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__.removeprefix("faults_of_"))
def test_the_package_keeps_the_rules(rule, known):
    assert known, "no source found"
    assert list(rule(known)) == []


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"codes/a.py": "from gphash.method import ep", "method/ep.py": ""}, "codes.a imports method.ep from above"),
        ({"arrays.py": "def f():\n import gphash.cli", "cli/__init__.py": ""}, "cli from above"),
        ({"arrays.py": "from gphash import GPHasher"}, "arrays imports from the package's root"),
        ({"arrays.py": "from gphash.nowhere import x"}, "nowhere, which does not exist"),
        ({"newcomer.py": ""}, "'newcomer' has no place in ORDER"),
        ({"method/a.py": "from gphash.method import b", "method/b.py": "from gphash.method.a import x"}, "cycle"),
        ({"method/a.py": "from . import b", "method/b.py": ""}, "relatively"),
        ({"arrays.py": "import pickle"}, "imports pickle"),
        ({"arrays.py": "from joblib import dump"}, "imports joblib.dump"),
        ({"arrays.py": "joblib.dump(1, 'x')"}, "calls joblib.dump"),
        ({"arrays.py": "subprocess.run('ls', shell=True)"}, "starts a shell"),
        ({"arrays.py": "np.load('x', allow_pickle=True)"}, "allows pickle"),
        ({"arrays.py": "print(1)"}, "arrays:2 prints"),
        (
            {"arrays.py": "import PIL.Image", "compiled.py": "from PIL import Image"},
            "PIL is imported in arrays, compiled",
        ),
        ({"method/__init__.py": "x = 1"}, "method.__init__ holds more"),
        ({"method/utils.py": ""}, "method.utils: the name says nothing"),
        ({"arrays.py": "class A: ...", "files.py": "class A: ..."}, "class A is there twice: arrays, files"),
        ({"codes/a.py": "", "method/a.py": ""}, "module a is there twice: codes.a, method.a"),
        ({"arrays.py": "def f():\n" + " x = 1\n" * 60}, "arrays.f has 61 lines; it may have 60"),
        ({"arrays.py": "x = 1\n" * 450}, "arrays has 452 lines; it may have 450"),
    ],
)
def test_the_rules_see_a_breach(tmp_path, files, fault):
    root = tmp_path / PACKAGE
    for name, source in {"__init__.py": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""Docstring."""\n{source}\n', encoding="utf-8")
    known = modules(root)
    found = [text for rule in RULES for text in rule(known)]
    assert len(found) == 1
    assert fault in found[0]


def test_the_rules_see_a_missing_docstring(tmp_path):
    (tmp_path / "__init__.py").write_text("x = 1\n")
    assert list(faults_of_files(modules(tmp_path))) == [f"{PACKAGE} has no docstring"]
