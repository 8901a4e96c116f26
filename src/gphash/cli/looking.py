"""Commands that only look: info, data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from gphash.cli import app, options, outputs, shown
from gphash.cli.options import DataDir, Describe, EncoderOption, Threads
from gphash.data.headers import UNSAID, Roles
from gphash.data.known import data_sets

if TYPE_CHECKING:
    from gphash.container import Description
    from gphash.data.sources import Source

MISSING = 10  # missing files that are named
KEYS = {"integer": "whole numbers", "text": "texts"}

FILE = (
    "A collection, a folder or postgresql://USER@HOST/DATABASE?collection=NAME; a file of a model, checkpoint, report, "
    "codes or cache, or an exported graph; or a folder of codes of blocks."
)
DATA = f"{options.DATA} If not given, the known data sets are listed."
Data = Annotated[str | None, Argument(metavar="DATA", help=DATA, autocompletion=options.complete_data)]


@app.command(
    "gphash info digits-16.gph",
    "gphash info photos.gphash",
    "gphash info 'postgresql://me@localhost/shop?collection=photos'",
)
def info(file: Annotated[str, Argument(metavar="FILE", help=FILE)]) -> None:
    """Explain what gphash has written.

    Of a file, only the header is read; gphash verifies the content whenever it uses a file. Of a collection, the
    columns are listed that a condition of gphash search --where may name.
    """
    from gphash.collection import bulk, manifest

    path = Path(file)
    if "://" in file or manifest.is_collection(file):
        shown.answer(_collection(file))
    elif path.is_dir():
        begun = path / manifest.PARTS  # of a collection that is not finished
        shown.answer(_blockwise(begun if bulk.has_plan(begun) else path))
    else:
        shown.answer(_explained(path))


def _collection(place: str) -> dict[str, Any]:
    """What a collection holds."""
    from gphash.collection import manifest
    from gphash.collection.collection import Collection

    told: dict[str, Any] = {"collection": options.hidden(place), "kind": "collection"}
    if "://" not in place:
        named = manifest.read(Path(place))
        sizes = (_size(Path(place, name)) for name in {*named.files, f"{named.items}-wal"})
        told |= {"bytes": sum(sizes), "parts": len(named.parts)}
    with Collection.open(place) as collection:
        stats = collection.index.stats()
        told |= {"name": collection.name, "items": stats.n_items, "bits": collection.n_bits, "codes": stats.n_codes}
        told |= {"largest_bucket": stats.largest_bucket, "keys": KEYS[collection.layout.keys]}
        told |= {"columns": collection.columns, "classes": collection.classes, "pictures": collection.has_pictures}
        told["vectors"] = None if collection.vectors is None else collection.vectors._asdict()
        told |= {"pictures_elsewhere": collection.hidden_folder, "method": collection.model.method}
        told["descriptor"] = None if collection.descriptor is None else collection.descriptor.to_meta()
        return told | {"model": collection.model.fingerprint}


def _size(path: Path) -> int:
    """Bytes of a file; 0 if a writer has removed it meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@app.command("gphash data", "gphash data digits:test", "gphash data photos/", "gphash data /shared/blocks")
@options.with_columns
def data(
    data: Data = None,
    descriptor: Describe = None,
    encoder_options: EncoderOption = None,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
    roles: Roles = UNSAID,
) -> None:
    """List the known data sets, or describe DATA.

    The list says where each is looked for, and whether it is there; nothing is downloaded for it.
    """
    from gphash.collection import bulk, manifest

    if data is None:
        _list(data_dir)
        return
    place = Path(data).expanduser()
    if not options.is_known(data) and (bulk.has_plan(place) or manifest.is_collection(place)):
        raise ValueError(f"{data!r} is what gphash made; gphash info {data} explains it.")
    told = (
        _blocks(data, descriptor, roles)
        if options.has_blocks(data)
        else _rows(options.read(data, data_dir, n_jobs, descriptor, roles, encoder_options))
    )
    if not shown.answer(told, ""):
        return
    counts = [(name, f"{count:,}") for name, count in told.pop("classes").items()]
    shown.facts(told)
    if counts:
        shown.say("")
        shown.table(("class", "rows"), counts[: shown.MOST])
    if len(counts) > shown.MOST:
        shown.say(f"… and {len(counts) - shown.MOST:,} more; --json lists all.")


def _rows(source: "Source") -> dict[str, Any]:
    """What is known of rows."""
    import numpy as np

    told: dict[str, Any] = {"name": source.name, "rows": len(source.X), "features": source.X.shape[1]}
    told["supervision"] = options.supervision_of(source.y, source.pairs)
    told["classes"] = _counts(source.y, source.classes)
    told |= {"unlabelled": _unlabelled(source.y), "item_columns": [name for name in source.columns if name != "key"]}
    told["pairs"] = None if source.pairs is None else np.size(source.pairs.i)
    told["pictures"] = source.images is not None
    told["descriptor"] = None if source.descriptor is None else source.descriptor.to_meta()
    skipped = [{"path": str(one.path), "reason": one.reason} for one in source.skipped]
    return told | {"checksum": source.checksum, "skipped": skipped}


def _blocks(data: str, descriptor: str | None, roles: Roles) -> dict[str, Any]:
    """What the headers of blocks tell, and how many rows there are of every class."""
    options.refuse_descriptor(descriptor)
    table = options.open_blocks(data, roles)
    labels = table.labels()
    y, classes = (None, ()) if labels is None else (labels.y, labels.classes)
    told = {"name": table.folder.name, "kind": table.kind.name, "blocks": len(table.blocks), "rows": table.n_rows}
    told |= {"features": table.n_features, "dtype": table.dtype, "supervision": options.supervision_of(y)}
    header = table.header()
    told |= {"unlabelled": _unlabelled(y), "item_columns": [] if header is None else list(header.items)}
    return told | {"classes": _counts(y, classes), "fingerprint": table.fingerprint()}


def _counts(y: Any, classes: tuple[str, ...]) -> dict[str, int]:
    """Rows of every class, or with every tag."""
    import numpy as np

    if y is None:
        return {}
    found = np.bincount(y[y >= 0], minlength=len(classes)) if y.ndim == 1 else y.sum(axis=0)
    return dict(zip(classes, found.tolist(), strict=True))


def _unlabelled(y: Any) -> int | None:
    """Rows without a label, if some have one."""
    return None if y is None or y.ndim == 2 else int((y < 0).sum()) or None


def _list(data_dir: Path | None) -> None:
    """Every known data set, by the names of its files; nothing is read."""
    from gphash.data import downloads

    folder = downloads.data_dir(data_dir)
    places: list[dict[str, Any]] = []
    for name, known in data_sets.DATA_SETS.items():
        inside = known.is_there is None
        there = known.is_there is None or known.is_there(folder)
        state = f"complete ({known.state})" if inside else "complete" if there else f"missing; {known.state}"
        places.append({"name": name, "folder": None if inside else str(folder), "state": state, "complete": there})
    if shown.answer({"folder": folder, "data_sets": places}, ""):
        rows = [(one["name"], one["state"], one["folder"] or "") for one in places]
        shown.table(("data set", "state", "folder"), rows, left=(0, 1, 2))


def _explained(path: Path) -> dict[str, Any]:
    """Everything that is known of a file of ours."""
    from gphash import container, schema
    from gphash.collection import manifest
    from gphash.data.descriptors import cache
    from gphash.functions import onnx_graph

    with open(path, "rb") as file:
        magic = file.read(8)
    found: dict[str, Any] = {}
    if magic == container.MAGIC:
        described = container.describe(path)
        with schema.reading(path):
            found = _container(described)
    elif manifest.is_collection(path.parent):
        raise ValueError(f"{str(path)!r} is a part of a collection; gphash info {path.parent} explains it.")
    elif path.name == cache.FILE:
        found = {"kind": "descriptors", "remark": "a cache of picture descriptors; it may be removed"}
    elif (codes := outputs.codes_in(path)) is not None:
        found = _codes(path, codes)
    elif magic.lstrip()[:1] == b"{":
        found = _report(path)
    elif onnx_graph.is_ours(path):
        found = _graph(path)
    if not found:
        raise ValueError(f"{str(path)!r} is not a file of gphash.")
    return {"file": str(path), "bytes": path.stat().st_size, **found}


def _graph(path: Path) -> dict[str, Any]:
    """A model as gphash export writes it."""
    from gphash.functions import onnx_graph

    inputs, outputs, metadata = onnx_graph.describe(path)
    told: dict[str, Any] = {"kind": "ONNX graph", "model": metadata.get("gphash_fingerprint")}
    told |= {"bits": metadata.get("gphash_bits"), "classes": metadata.get("gphash_classes")}
    for side, values in (("inputs", inputs), ("outputs", outputs)):
        told[side] = [f"{name} {kind}" for name, kind in values.items()]
    return told


def _container(described: "Description") -> dict[str, Any]:
    """A model, index, checkpoint or the like by its header."""
    meta, remarks, arrays = described.meta, described.remarks, described.arrays
    parameters, learned, origin = ((remarks.get(name) or {}) for name in ("parameters", "learned", "origin"))
    told: dict[str, Any] = {"kind": described.kind, "fingerprint": described.fingerprint}
    told |= {"gphash": described.library_version, "bits": meta.get("n_bits", parameters.get("n_bits"))}
    told |= {"method": remarks.get("method")}
    told |= {name: meta[name] for name in ("name", "model", "classes", "folder", "run") if name in meta}
    told |= {"items": arrays["ids"].shape[0]} if "ids" in arrays else {}
    if sweeps := meta.get("sweeps", learned.get("sweeps_")):
        # A sweep is kept as number, flips, leave-one-out score, …
        told |= {"sweeps": len(sweeps), "leave_one_out_score": sweeps[-1][2]}
    if seconds := learned.get("seconds_"):
        told["training_seconds"] = sum(seconds.values())
    if {"rows", "data"} <= set(origin):
        told["trained_with"] = f"{origin['rows']:,} rows of {origin['data']}"
    told["descriptor"] = meta.get("descriptor", remarks.get("descriptor"))
    told["parameters"] = {name: value for name, value in parameters.items() if name != "n_jobs" and value is not None}
    entries = {name: {"dtype": one.dtype, "shape": one.shape, "bytes": one.n_bytes} for name, one in arrays.items()}
    return told | {"arrays": entries}


def _codes(path: Path, codes: Any) -> dict[str, Any]:
    """Codes of rows, or of a block if a manifest beside the file names it."""
    from gphash.collection import bulk

    archive = not hasattr(codes, "shape")
    n_rows, n_bytes = (codes["codes"] if archive else codes).shape
    told = {"kind": "codes", "rows": n_rows, "bytes_per_row": n_bytes, "probabilities": archive}
    if not archive and bulk.has_plan(path.parent):
        plan = bulk.read_plan(path.parent)
        for block in plan.blocks:
            if block.file == path.name:
                told |= {"kind": f"{plan.kind} of a block", "block": block.name, "first_row": block.start}
                told |= {"bits": plan.n_bits, "model": plan.model}
    return told


def _report(path: Path) -> dict[str, Any]:
    """A report of an evaluation, or of a cell of a comparison; nothing if it is none."""
    from gphash.evaluation import protocol, report

    try:
        found = report.read(path)
    except ValueError:
        return {}
    told: dict[str, Any] = {"kind": "report", "gphash": found.get("gphash")}
    told |= {name: found.get(name, {}).get("name") for name in ("data", "method", "protocol")}
    results = found.get("results", {})
    precision = {name: results[name]["map"] for name in protocol.RANKED_BY if name in results}
    return told | {"queries": found.get("protocol", {}).get("queries"), "map": precision}


def _blockwise(folder: Path) -> dict[str, Any]:
    """A folder with a file for every block of a table."""
    from gphash.collection import bulk
    from gphash.container import FormatError
    from gphash.data import blocks

    if not bulk.has_plan(folder):
        what = "blocks" if blocks.is_folder_of_blocks(folder) else "pictures"
        raise ValueError(f"{str(folder)!r} is a folder; gphash data {folder} describes a folder of {what}.")
    plan = bulk.read_plan(folder)
    files = [bulk.MODEL, *(block.file for block in plan.blocks)]
    there = [folder / name for name in files[1:] if (folder / name).is_file()]
    missing = [name for name in files if not (folder / name).is_file()]
    if plan.finished and missing:
        raise FormatError(
            f"{str(folder)!r} is not whole: {len(missing):,} of {len(files):,} files are missing "
            f"({shown.some(missing, MISSING, ' and {} more')}); run the same gphash encode again, which makes them."
        )
    told: dict[str, Any] = {"folder": str(folder), "bytes": sum(path.stat().st_size for path in there)}
    told |= {"kind": f"{plan.kind} of a folder of blocks", "finished": plan.finished}
    told |= {"rows": plan.n_rows, "bits": plan.n_bits, "files": len(plan.blocks), "files_there": len(there)}
    told |= {"model": plan.model, "source": plan.source}
    return told if plan.finished else told | {"remark": app.AGAIN}
