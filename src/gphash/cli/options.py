"""Arguments and options that several commands share, how the words in them are read, and the rows that DATA names."""

import contextlib
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from glob import glob
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from gphash.cli import app, shown
from gphash.data.headers import UNSAID, Roles
from gphash.data.known import data_sets
from gphash.hashers import methods

if TYPE_CHECKING:
    from gphash.collection.collection import Collection
    from gphash.data.blocks import FolderTable
    from gphash.data.descriptors.descriptor import Descriptor
    from gphash.data.sources import Source

DATA = (
    "What to read rows from: a known data set and split (digits:train, cifar10:test, mnist …), a folder of pictures, "
    "a picture, or a file .npy, .npz, .csv, .parquet or .arrow; to fit, encode and index also a folder of .npy or "
    ".parquet blocks, or a Zarr array. With an encoder of texts also a file .txt, one text a line, a folder of .txt "
    "files, or a table with a column of texts."
)
MOST_BITS = 256  # that "auto" may take
NAMED = 5  # files that were left out
BLOCKS = "a folder of .npy or .parquet blocks, or a Zarr array"


def number(word: str, least: int = 1, most: int | None = None) -> int:
    """A whole number; Python itself would also read 1_0, and the digits of other alphabets."""
    if re.fullmatch(r"-?[0-9]{1,18}", word) and least <= int(word) and (most is None or int(word) <= most):
        return int(word)
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise BadParameter(f"{word!r} is not a whole number {limits}.")


def whole(*names: str, least: int = 1, most: int | None = None, **how: Any) -> Any:
    """An option that takes a whole number."""
    return Option(*names, parser=lambda word: number(str(word), least, most), metavar="NUMBER", **how)


def length(word: str) -> int:
    """A number of bits; 0 for the word "auto"."""
    return 0 if word == "auto" else number(word)


Length = Annotated[
    int,
    Option(
        "--bits",
        "-b",
        parser=lambda word: length(str(word)),
        metavar="NUMBER",
        help="Length of a code; auto takes the shortest that is nearly as good as any on held-out rows.",
    ),
]


def words(name: str, text: str) -> list[str]:
    """Words that commas separate, each once."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise BadParameter(f"--{name} is empty; give words separated by commas.")
    return list(dict.fromkeys(found))


def settings(given: list[str] | None, option: str = "--set") -> dict[str, Any]:
    """Parameters from NAME=VALUE, each value a number or a truth if it looks like one."""
    found: dict[str, Any] = {}
    for text in given or []:
        name, _, value = text.partition("=")
        if not (name.isidentifier() and value):
            raise BadParameter(f"{option} {text!r}; give NAME=VALUE.")
        found[name] = {"true": True, "false": False}.get(value.lower(), value)
        for kind in (float, int) if "_" not in value and value.isascii() else ():
            with contextlib.suppress(ValueError):
                found[name] = kind(value)
    return found


def encoder_settings(given: list[str] | None) -> dict[str, Any]:
    """Settings of an encoder from NAME=VALUE, where a value may be numbers with commas between them."""
    found = settings(given, "--encoder-option")
    for name, value in found.items():
        if isinstance(value, str) and "," in value:
            try:
                found[name] = [float(word) for word in value.split(",")]
            except ValueError:
                raise BadParameter(f"--encoder-option {name}={value}; give numbers separated by commas.") from None
    return found


def place_encoder(path: str | None, descriptor: "Descriptor | None", owner: str | Path) -> None:
    """Say where the encoder of a model or collection is; another one is refused."""
    if path is not None:
        from gphash.data.descriptors import encoders

        with app.usage():
            encoders.hand_in(path, descriptor, str(owner))


def key(word: str, collection: "Collection") -> int | str:
    """The key of an item, of the kind that a collection has."""
    if collection.layout.keys == "text":
        return word
    with contextlib.suppress(BadParameter):
        return number(word, -(2**63))
    raise BadParameter(f"{word!r} is no key; the keys of this collection are whole numbers.")


def hidden(address: str) -> str:
    """An address without its password."""
    from gphash.collection import stores

    return stores.hidden(address)


def complete_method(incomplete: str) -> Iterator[str]:
    """Methods whose names begin so."""
    return (name for name in methods.METHODS if name.startswith(incomplete))


def complete_data(incomplete: str) -> Iterator[str]:
    """Known data sets, their splits once the name is there, and files that begin so."""
    name, colon, _ = incomplete.partition(":")
    splits = [f"{name}:{split}" for split in ("train", "test")] if colon and name in data_sets.DATA_SETS else []
    yield from (word for word in (*data_sets.DATA_SETS, *splits) if word.startswith(incomplete))
    yield from (path + (os.sep if os.path.isdir(path) else "") for path in sorted(glob(f"{incomplete}*")))


def _known_ranking(name: str | None) -> str | None:
    from gphash.index.rankings import RANKINGS

    with app.usage():
        if name is not None:
            RANKINGS.find(name)
    return name


def _not_zero(threads: int) -> int:
    if threads == 0:
        raise BadParameter("it is 0; give at least 1, or -1 for all cores.")
    return threads


def with_columns(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say what the columns of a table are; its function gets them as `roles`."""

    @functools.wraps(function)
    def told(*args: Any, **kwargs: Any) -> None:
        label, tags, key, text, items = (kwargs.pop(name, None) for name in COLUMNS)
        function(*args, roles=Roles(label, tags, key, text, tuple(items or ())), **kwargs)

    own = inspect.signature(function)
    kept = [one for one in own.parameters.values() if one.name != "roles"]
    more = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in COLUMNS.items()]
    told.__annotations__ = {name: kind for name, kind in told.__annotations__.items() if name != "roles"} | COLUMNS
    told.__signature__ = own.replace(parameters=[*kept, *more])  # type: ignore[attr-defined]
    return told


def read(
    data: str,
    data_dir: Path | None,
    n_jobs: int,
    descriptor: "Descriptor | str | None" = None,
    roles: Roles = UNSAID,
    encoder_options: list[str] | None = None,
) -> "Source":
    """DATA, its pictures or texts described as a model does it, by a descriptor's name, or by an encoder's path.

    What was left out is said, and of a table also what its columns are.
    """
    from gphash.data import sources

    with shown.Meter(f"reading {data}") as progress, app.usage():
        of_encoder = encoder_settings(encoder_options)
        source = sources.read(data, data_dir, progress, n_jobs, descriptor, roles, of_encoder)
    reasons = [one.reason for one in source.skipped]
    if not is_known(data) and sources.is_table(data):
        _tell_columns(data, source.X.shape[1], [name for name in source.columns if name != "key"], reasons)
    elif reasons:
        shown.remark(f"left out {len(reasons)} file(s) of {data!r}: {shown.some(reasons, NAMED, '; and {} more')}")
    return source


def open_blocks(data: str, roles: Roles) -> "FolderTable":
    """A folder of blocks; of tables, what their columns are is said."""
    from gphash.data import blocks

    with app.usage():
        table = blocks.open_folder(Path(data).expanduser(), roles)
    if (header := table.header()) is not None:
        reasons = [f"column {header.names[column]!r}: {why}" for column, why in header.left_out.items()]
        _tell_columns(data, table.n_features, list(header.items), reasons)
    return table


def _tell_columns(data: str, n_features: int, items: list[str], left_out: list[str]) -> None:
    if not shown.manner.quiet:
        named = shown.some(items, shown.MOST, " … and {} more") or "none"
        shown.note(f"{data}: {n_features:,} features a row; item columns: {named} (--item-column adds some)")
    if left_out:
        what = shown.some(left_out, NAMED, "; and {} more")
        n_columns = sum(one.startswith("column ") for one in left_out)
        count = f"{n_columns} column(s) of {data!r}" if n_columns == len(left_out) else f"of {data!r}"
        shown.remark(f"left out {count}: {what}")


def labelled(source: "Source") -> "Source":
    """The rows that have a label; how many have none is said."""
    from gphash.data import sources

    found = sources.labelled(source)
    if n_left := len(source.X) - len(found.X):
        shown.remark(f"left out {n_left:,} of {len(source.X):,} rows of {source.name!r}, which have no label")
    return found


def is_known(data: str) -> bool:
    """Whether DATA is a known data set, whatever lies in the working directory."""
    return data.partition(":")[0] in data_sets.DATA_SETS


def has_blocks(data: str, cluster: str | None = None) -> bool:
    """Whether DATA is a folder of blocks, as it must be for a cluster."""
    from gphash.data import blocks

    found = not is_known(data) and blocks.is_folder_of_blocks(Path(data).expanduser())
    if cluster is not None and not found:
        raise BadParameter(f"--cluster reads {BLOCKS}; {data!r} is not one. Leave out --cluster, or give such DATA.")
    return found


def refuse_descriptor(descriptor: str | None) -> None:
    """Refuse to describe rows of a folder of blocks."""
    if descriptor is not None:
        raise BadParameter(f"--descriptor {descriptor!r}: blocks hold rows, not pictures; leave it out.")


def goes_on(given: Mapping[str, Any]) -> str | None:
    """What is said after Ctrl-C of work on a folder of blocks."""
    return app.AGAIN if has_blocks(given["data"]) else None


def check_rows(n_features: int, descriptor: "Descriptor | None", name: str | Path, source: "Source") -> None:
    """Refuse rows that are not like those a model was trained on; `name` is that of its file, or of a collection."""
    from gphash.data.descriptors import descriptor as descriptors

    if n_features != (found := source.X.shape[1]):
        raise ValueError(
            f"{source.name!r} has {found} features a row, and {str(name)!r} was trained on {n_features}; give rows of "
            "the same kind."
        )
    descriptors.check_same(descriptor, source.descriptor, str(name), source.name)


def supervision_of(y: Any, pairs: Any = None) -> str:
    """What kind of supervision rows come with: labels, tags, pairs or none."""
    if y is None:
        return "none" if pairs is None else "pairs"
    return "labels" if y.ndim == 1 else "tags"


def output(help: str) -> Any:
    """The option that says what to write."""
    return Option("--output", "-o", help=help)


# What the columns of a table are; see `with_columns`.
COLUMNS: dict[str, Any] = {
    f"{name}_column": Annotated[kind, Option(metavar="NAME", help=help)]
    for name, kind, help in (
        ("label", str | None, "Column of a table with the class of a row, or blank; if not given, label."),
        ("tags", str | None, "Column with the tags of a row, separated by ';'; if not given, tags."),
        ("key", str | None, "Column that tells rows apart, of numbers or texts; if not given, id or key."),
        ("text", str | None, "Column with the text of an item; if not given, text."),
        ("item", list[str] | None, "Column of numbers that is not a feature, but is kept with the items; repeatable."),
    )
}

CLUSTER = f"Address of a Dask scheduler to work on its cluster; DATA is {BLOCKS} that all workers can read."
SET = "A parameter of the method, such as n_inducing=300 or kernel=matern-3/2; repeatable."
RANKING = (
    "similarity has the most probably similar first; expected weighs each differing bit by how sure the model is of "
    "it; hamming counts them. If not given, similarity if the model knows its probability, else hamming."
)
PLACE = "A collection: a folder, as gphash index writes it, or postgresql://USER@HOST/DATABASE?collection=NAME."
DESCRIBE = (
    "How pictures become rows: gist, bag-of-words or pixels; or the path of an encoder of pictures or texts: an ONNX "
    "model, or the folder that it is in."
)
ENCODER_OPTION = (
    "What the files beside an encoder do not say: size=224, mean=0.485,0.456,0.406, deviation=0.229,0.224,0.225, "
    "pooling=cls, normalised=false, tokens=256, output=NAME; repeatable."
)
ENCODER_PATH = (
    "Where the encoder is that the model was trained with, if it is not where it was. Another one is refused."
)
REPLACE = "Replace a collection that is there. It stays until the new one is whole."
THREADS = "Threads; -1 takes all cores. Never changes a result."

Data = Annotated[str, Argument(metavar="DATA", help=DATA, autocompletion=complete_data)]
Model = Annotated[Path, Argument(metavar="MODEL", help="A model, as gphash fit writes it.")]
Place = Annotated[str, Argument(metavar="COLLECTION", help=PLACE)]
Replace = Annotated[bool, Option("--replace", help=REPLACE)]
Pictures = Annotated[Path | None, Option(help="Folder of the pictures, if it is not beside the collection.")]
DataDir = Annotated[Path | None, Option(help="Folder of data sets; if not given, GPHASH_DATA or the user's cache.")]
Describe = Annotated[str | None, Option("--descriptor", metavar="NAME or PATH", help=DESCRIBE)]
EncoderOption = Annotated[list[str] | None, Option("--encoder-option", metavar="NAME=VALUE", help=ENCODER_OPTION)]
EncoderPath = Annotated[str | None, Option("--descriptor", metavar="PATH", help=ENCODER_PATH)]
Cluster = Annotated[str | None, Option("--cluster", metavar="ADDRESS", help=CLUSTER)]
Set = Annotated[list[str] | None, Option("--set", metavar="NAME=VALUE", help=SET)]
Seed = Annotated[int, whole("--seed", least=0, most=2**32 - 1, help="Seed of everything random.")]
Threads = Annotated[int, whole("--threads", least=-1, callback=_not_zero, help=THREADS)]
K = Annotated[int, whole("-k", help="How many neighbours.")]
Ranking = Annotated[str | None, Option(metavar="NAME", callback=_known_ranking, help=RANKING)]
Radius = Annotated[int | None, whole("--radius", least=0, help="Only items within this Hamming distance.")]
