"""Commands that only look: info, data."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from gphash.cli import app, shown, training
from gphash.cli.app import Argument, DataDir, Debug, Json, Quiet, Threads
from gphash.datasets import registry

if TYPE_CHECKING:
    from gphash.persistence import Description

SHORT = 12  # characters of a fingerprint that are shown
MOST_CLASSES = 30
SOME = 10  # missing files that are named
NUSWIDE = ("BoW_Train_int.dat", "BoW_Test_int.dat")


class Place(NamedTuple):
    """Where a known data set is, and in what state.

    name
        How commands call it.
    folder
        Where it is looked for; None if it needs no files.
    state
        In words: complete, missing, or why it needs no files.
    complete
        Whether it can be read without a download.
    """

    name: str
    folder: Path | None
    state: str
    complete: bool


@app.command("gphash info digits-16.gph", "gphash info /shared/index")
def info(
    file: Annotated[
        Path,
        Argument(
            metavar="FILE",
            help="A model, index, items, checkpoint, report or cache; or a folder made of a folder of blocks.",
            show_default=False,
        ),
    ],
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Explain a file that gphash has written.

    Only the header is read; gphash verifies the content whenever it uses a file.
    """
    told = _parts(file) if file.is_dir() else _explained(file)
    if as_json:
        shown.emit(told)
        return
    shown.facts(list(_lines(told)))


@app.command("gphash data", "gphash data digits:test", "gphash data photos/", "gphash data /shared/blocks")
def data(
    data: Annotated[
        str | None,
        Argument(
            metavar="DATA",
            help=app.DATA + " Blocks are described, too. If not given, the known data sets are listed.",
            autocompletion=app.complete_data,
            show_default=False,
        ),
    ] = None,
    threads: Threads = -1,
    data_dir: DataDir = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """List the known data sets, or describe DATA.

    The list says where each is looked for, and whether it is there; nothing is downloaded for it.
    """
    if data is None:
        _list(data_dir, as_json)
        return
    _refuse_parts(data)
    if training.has_blocks(data, None):
        _describe_blocks(Path(data).expanduser(), as_json)
        return
    import numpy as np

    source = training.read(data, data_dir, threads, quiet)
    counts = _counts(source)
    kind = "none" if source.supervision is None else "pairs" if source.y is None else _kind_of(source.y)
    told: dict[str, Any] = {
        "name": source.name,
        "rows": len(source.X),
        "features": source.X.shape[1],
        "supervision": kind,
        "pairs": None if source.pairs is None else int(np.size(source.pairs.i)),
        "classes": counts,
        "pictures": source.images is not None,
        "descriptor": None if source.descriptor is None else source.descriptor.to_meta(),
        "checksum": source.checksum,
        "skipped": [{"path": str(one.path), "reason": one.reason} for one in source.skipped],
    }
    if as_json:
        shown.emit(told)
        return
    lines = [("rows", f"{told['rows']:,}"), ("features", f"{told['features']:,}"), ("supervision", kind)]
    if told["pairs"] is not None:
        lines.append(("pairs", f"{told['pairs']:,}"))
    lines.append(("pictures", "yes" if told["pictures"] else "no"))
    if source.descriptor is not None:
        shape = " × ".join(map(str, source.descriptor.shape))
        lines.append(("described by", f"{source.descriptor.name} {shape}".strip()))
    if source.skipped:
        lines.append(("left out", f"{len(source.skipped):,} files"))
    lines.append(("checksum", source.checksum[:SHORT]))
    shown.facts(lines)
    _print_counts(counts)


def _refuse_parts(data: str) -> None:
    """Refuse a folder that holds no rows, but what was made of them."""
    from gphash.index import parts

    if data.partition(":")[0] not in registry.DATA_SETS and parts.is_folder_of_parts(Path(data).expanduser()):
        raise ValueError(f"{data!r} holds what gphash made of a folder of blocks; gphash info {data} explains it.")


def _describe_blocks(folder: Path, as_json: bool) -> None:
    """Say what the heads of blocks tell, and how many rows there are of every class."""
    from gphash.datasets import blocks, zarr_blocks

    table = blocks.open_folder(folder)
    labels = table.labels()
    counts = {} if labels is None else _counts(labels)
    told: dict[str, Any] = {
        "name": table.folder.name,
        "kind": "zarr" if zarr_blocks.marks(table.folder) else Path(table.names[0]).suffix.lower().lstrip("."),
        "blocks": len(table.blocks),
        "rows": table.n_rows,
        "features": table.n_features,
        "dtype": table.dtype,
        "supervision": "none" if labels is None else _kind_of(labels.y),
        "classes": counts,
        "fingerprint": table.fingerprint(),
    }
    if as_json:
        shown.emit(told)
        return
    kind = "a Zarr array" if told["kind"] == "zarr" else f"a folder of .{told['kind']} blocks"
    lines = [("kind", kind), *((name, f"{told[name]:,}") for name in ("blocks", "rows", "features"))]
    lines += [("dtype", table.dtype), ("supervision", told["supervision"])]
    shown.facts([*lines, ("fingerprint", told["fingerprint"][:SHORT])])
    _print_counts(counts)


def _print_counts(counts: dict[str, int]) -> None:
    if not counts:
        return
    shown.say("")
    some = list(counts.items())[:MOST_CLASSES]
    shown.table(("class", "rows"), [shown.Cells((name, f"{count:,}")) for name, count in some])
    if len(counts) > MOST_CLASSES:
        shown.say(f"… and {len(counts) - MOST_CLASSES:,} more; --json lists all.")


def _kind_of(y: Any) -> str:
    return "labels" if y.ndim == 1 else "tags"


def _counts(source: Any) -> dict[str, int]:
    """Rows of every class, or with every tag."""
    import numpy as np

    if source.y is None:
        return {}
    found = np.bincount(source.y, minlength=len(source.classes)) if source.y.ndim == 1 else source.y.sum(axis=0)
    return {name: int(count) for name, count in zip(source.classes, found, strict=True)}


def _list(data_dir: Path | None, as_json: bool) -> None:
    from gphash.datasets import storage

    folder = storage.data_dir(data_dir)
    places = list(_places(folder))
    if as_json:
        known = [{**one._asdict(), "folder": None if one.folder is None else str(one.folder)} for one in places]
        shown.emit({"folder": str(folder), "data_sets": known})
        return
    rows = [shown.Cells((one.name, one.state, str(one.folder or ""))) for one in places]
    shown.table(("data set", "state", "folder"), rows, left=(0, 1, 2))


def _places(folder: Path) -> Iterator[Place]:
    """Every known data set, by the names of its files; nothing is read."""
    from gphash.datasets import cifar10, coco_sift500, mnist, nuswide

    official = folder / nuswide.NAME if (folder / nuswide.NAME).is_dir() else folder
    counts = official / "Low_Level_Features"
    packed = [folder / name for name in (*mnist.TRAIN, *mnist.TEST)]
    needed: dict[str, Callable[[], bool]] = {
        "mnist": lambda: all(path.is_file() or path.with_name(path.name + ".gz").is_file() for path in packed),
        "cifar10": lambda: (
            (folder / cifar10.ARCHIVE).is_file()
            or all((folder / cifar10.FOLDER / name).is_file() for name in cifar10.MD5)
        ),
        "nuswide": lambda: (
            any((official / name).is_file() for name in nuswide.CONCEPTS)
            and (all((counts / name).is_file() for name in NUSWIDE) or (counts / "BoW_int.dat").is_file())
        ),
        "coco_sift500": lambda: (folder / coco_sift500.FILE).is_file(),
    }
    built_in = {"toy": "complete (drawn from a seed)", "digits": "complete (comes with scikit-learn)"}
    missing = {
        "mnist": "missing; downloaded when it is read (12 MB)",
        "cifar10": "missing; downloaded when it is read (170 MB)",
        "nuswide": f"missing; to be had by hand from {nuswide.PAGE}",
        "coco_sift500": f"missing; put {coco_sift500.FILE} there",
    }
    for name in registry.DATA_SETS:
        if name in built_in:
            yield Place(name, None, built_in[name], True)
        else:
            there = needed[name]()
            where = official if name == "nuswide" else folder
            yield Place(name, where, "complete" if there else missing[name], there)


def _explained(path: Path) -> dict[str, Any]:
    """Everything that is known of a file of ours, in JSON's types."""
    from gphash import persistence, schema
    from gphash.features import cache
    from gphash.index import journal

    n_bytes = path.stat().st_size
    with open(path, "rb") as file:
        magic = file.read(8)
    told: dict[str, Any] = {"file": str(path), "bytes": n_bytes}
    if magic == persistence.MAGIC:
        described = persistence.describe(path)
        with schema.reading(path):
            return {**told, **_container(described), **_beside(path, described.kind)}
    if magic == cache.MAGIC:
        return {**told, "kind": "descriptors", "remark": "a cache of picture descriptors; it may be removed"}
    if magic == journal.MAGIC:
        return {**told, "kind": "journal", "remark": f"changes to {path.with_suffix('').name} since it was written"}
    if magic.startswith(b"\x93NUMPY") and (found := _codes(path)):
        return {**told, **found}
    if magic.lstrip()[:1] == b"{":
        return {**told, **_report(path)}
    raise ValueError(f"{str(path)!r} is no file of gphash.")


def _codes(path: Path) -> dict[str, Any]:
    """Codes of a block; nothing if no manifest beside the file names it."""
    from gphash.index import parts

    if not parts.is_folder_of_parts(path.parent):
        return {}
    manifest = parts.read_manifest(path.parent)
    for block in manifest.blocks:
        if block.file == path.name:
            told = {"kind": f"{manifest.kind} of a block", "block": block.name, "rows": block.n_rows}
            return told | {"first_row": block.start, "bits": manifest.n_bits, "model": manifest.model}
    return {}


def _parts(folder: Path) -> dict[str, Any]:
    """A folder with a file for every block of a table."""
    from gphash.datasets import blocks
    from gphash.index import parts
    from gphash.persistence import FormatError

    if not parts.is_folder_of_parts(folder):
        what = "blocks" if blocks.is_folder_of_blocks(folder) else "pictures"
        raise ValueError(f"{str(folder)!r} is a folder; gphash data {folder} describes a folder of {what}.")
    manifest = parts.read_manifest(folder)
    there = [path for block in manifest.blocks if (path := folder / block.file).is_file()]
    files = [parts.MODEL, *(block.file for block in manifest.blocks)]
    missing = [name for name in files if not (folder / name).is_file()]
    if manifest.finished and missing:
        command = {"codes": "encode", "index": "index"}[manifest.kind]
        more = f" and {len(missing) - SOME:,} more" if len(missing) > SOME else ""
        raise FormatError(
            f"{str(folder)!r} is not whole: missing of {len(files):,} files are {', '.join(missing[:SOME])}{more}; run "
            f"the same gphash {command} again, which makes them anew."
        )
    told: dict[str, Any] = {"folder": str(folder), "bytes": sum(path.stat().st_size for path in there)}
    told |= {"kind": f"{manifest.kind} of a folder of blocks", "finished": manifest.finished}
    told |= {"rows": manifest.n_rows, "bits": manifest.n_bits, "files": len(manifest.blocks), "files_there": len(there)}
    told |= {"model": manifest.model, "source": manifest.source}
    if not manifest.finished:
        told["remark"] = "interrupted; run the same command again to go on where it stopped"
    return told


def _container(described: "Description") -> dict[str, Any]:
    """A container file by its header."""
    told: dict[str, Any] = {
        "kind": described.kind,
        "fingerprint": described.fingerprint,
        "format": described.format_version,
        "gphash": described.library_version,
    }
    explain = {"model": _model, "index": _index, "items": _items, "checkpoint": _checkpoint}
    if described.kind in explain:
        told |= explain[described.kind](described)
    told["arrays"] = {
        name: {"dtype": entry.dtype, "shape": list(entry.shape), "bytes": entry.n_bytes}
        for name, entry in described.arrays.items()
    }
    return told


def _model(described: "Description") -> dict[str, Any]:
    remarks = described.remarks
    parameters = {
        name: value for name, value in remarks.get("parameters", {}).items() if name != "n_jobs" and value is not None
    }
    told: dict[str, Any] = {"method": described.meta.get("method"), "bits": parameters.get("n_bits")}
    learned = remarks.get("learned", {})
    if sweeps := learned.get("sweeps"):
        # A sweep is kept as number, flips, leave-one-out score, …
        told |= {"sweeps": len(sweeps), "leave_one_out_score": sweeps[-1][2]}
    if seconds := learned.get("seconds"):
        told["training_seconds"] = sum(seconds.values())
    if (origin := remarks.get("origin")) and {"rows", "data"} <= set(origin):
        told["trained_with"] = f"{origin['rows']:,} rows of {origin['data']}"
    told["descriptor"] = remarks.get("descriptor")
    return {**told, "parameters": parameters}


def _index(described: "Description") -> dict[str, Any]:
    ids = described.arrays.get("ids")
    return {
        "bits": described.meta.get("n_bits"),
        "items": None if ids is None else ids.shape[0],
        "model": described.meta.get("model"),
    }


def _items(described: "Description") -> dict[str, Any]:
    meta, ids = described.meta, described.arrays.get("ids")
    told = {"items": None if ids is None else ids.shape[0]}
    return told | {
        name: meta.get(name) for name in ("name", "model", "descriptor", "classes", "folder") if name in meta
    }


def _checkpoint(described: "Description") -> dict[str, Any]:
    signs = described.arrays.get("signs")
    told: dict[str, Any] = {"sweeps": len(described.meta.get("sweeps", ())), "run": described.meta.get("run")}
    if signs is not None:
        told |= {"rows": signs.shape[0], "bits": signs.shape[1]}
    return told


def _report(path: Path) -> dict[str, Any]:
    """A report of an evaluation, or of a cell of a comparison."""
    from gphash.evaluation import report

    try:
        found = report.read(path)
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{str(path)!r} is no file of gphash.") from error
    told: dict[str, Any] = {"kind": "report", "format": found["format"], "gphash": found.get("gphash")}
    if "runs" in found:
        return {**told, "runs": len(found["runs"]), "summary": found["summary"]}
    results = found.get("results", {})
    return {
        **told,
        "data": found.get("data", {}).get("name"),
        "method": found.get("method", {}).get("name"),
        "protocol": found.get("protocol", {}).get("name"),
        "queries": found.get("protocol", {}).get("queries"),
        "map": {name: results[name]["map"] for name in ("hamming", "expected") if name in results},
    }


def _beside(path: Path, kind: str) -> dict[str, Any]:
    """What belongs to an index and lies beside it."""
    if kind != "index":
        return {}
    names = [path.with_name(path.name + suffix) for suffix in (".items", ".journal", ".added")]
    return {"beside": [one.name for one in names if one.exists()]}


def _lines(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What was found, for people."""
    for name, value in told.items():
        title = name.replace("_", " ")
        if value is None or value in ({}, []):
            continue
        if name == "arrays":
            for key, entry in value.items():
                shape = " × ".join(f"{side:,}" for side in entry["shape"]) or "1"
                yield f"  {key}", f"{entry['dtype'].lstrip('<|')} {shape}, {shown.size(entry['bytes'])}"
        elif name == "bytes":
            yield "size", shown.size(value)
        elif name in ("fingerprint", "run"):
            yield title, value
        elif name == "training_seconds":
            yield "training time", shown.duration(value)
        elif isinstance(value, float):
            yield title, f"{value:.4f}"
        elif isinstance(value, dict):
            yield title, ", ".join(f"{key} {_word(item)}" for key, item in value.items())
        elif isinstance(value, list):
            some = ", ".join(map(str, value[:MOST_CLASSES]))
            yield title, some + (f" … ({len(value):,} in all)" if len(value) > MOST_CLASSES else "")
        else:
            yield title, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _word(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
