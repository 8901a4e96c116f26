"""Commands about models: fit, encode, evaluate."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from gphash import methods
from gphash.cli import app, shown
from gphash.cli.app import BadParameter, Data, DataDir, Debug, Json, Model, Option, Quiet, Seed, Threads, Verbose
from gphash.datasets import registry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gphash.bulk import Made
    from gphash.contract import Hasher
    from gphash.datasets.sources import Source
    from gphash.features.descriptor import Descriptor
    from gphash.functions import model as models

BLOCK = 8192  # rows encoded between two signs of progress
NAMED = 5  # files that were left out
PHASES = 4  # of training that are shown of every worker
ELSEWHERE = {
    "n_bits": "--bits",
    "random_state": "--seed",
    "n_jobs": "--threads",
    "checkpoint": "--checkpoint",
    "executor": "--cluster",
}
NOT_HERE = {*ELSEWHERE, "callback"}

BLOCKS = "a folder of .npy or .parquet blocks, or a Zarr array"
ClusterAddress = Annotated[
    str | None,
    Option(
        "--cluster",
        metavar="ADDRESS",
        help=f"Work on a Dask cluster, whose scheduler has this address; DATA is {BLOCKS} that all workers see.",
        show_default=False,
    ),
]


class Lesson(NamedTuple):
    """What is learned from.

    name
        DATA as it was given.
    X
        The rows, or the folder that has them.
    y
        Labels, tags or pairs; None for a method that learns without.
    shape
        Rows and features.
    origin
        What the model keeps of it.
    descriptor
        How a picture becomes such a row; None for plain features.
    """

    name: str
    X: Any
    y: Any
    shape: tuple[int, int]
    origin: dict[str, Any]
    descriptor: "Descriptor | None" = None


@app.command(
    "gphash fit digits:train --bits 16",
    "gphash fit photos/ -o photos.gph --checkpoint photos.run",
    "gphash fit /shared/blocks --cluster tcp://10.0.0.1:8786",
    interrupted=lambda given: app.AGAIN if given["checkpoint"] else None,
)
def fit(
    data: Data,
    bits: Annotated[int, Option("--bits", "-b", min=1, help="Length of a code.")] = 32,
    method: Annotated[
        str,
        Option("--method", "-m", help=f"One of {', '.join(methods.METHODS)}.", autocompletion=app.complete_method),
    ] = "gph",
    output: Annotated[
        Path | None,
        Option(
            "--output", "-o", metavar="FILE", help="The model; DATA-BITS.gph if not given. A model there is replaced."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="A parameter of the method, such as n_inducing=300; repeatable."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        Option(metavar="FILE", help="Keep the state of training here; an interrupted run goes on from it."),
    ] = None,
    cluster: ClusterAddress = None,
    seed: Seed = 0,
    threads: Threads = -1,
    data_dir: DataDir = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Learn codes from rows, and write the model.

    Rows come with class labels, tags or judged pairs; some methods need none. The model is one file. For more rows than
    one machine can hold, DATA is a folder of blocks: .npy files with NAME.labels.npy beside them, .parquet files, or a
    Zarr array. The blocks stay where they are, and with --cluster its workers read them.
    """
    named = "" if method == "gph" else f"-{method}"
    given = app.settings(option)
    target = app.destination(output or Path(f"{app.stem(data)}{named}-{bits}.gph"), "model", data, checkpoint)
    hasher = _hasher(method, bits, seed, threads, given, checkpoint, cluster)
    if has_blocks(data, cluster):
        lesson = _lesson_of_blocks(hasher, method, data)
    else:
        lesson = _lesson(hasher, method, read(data, data_dir, threads, quiet))
    n_rows, n_features = lesson.shape
    if hasattr(hasher, "n_inducing") and "n_inducing" not in given:
        hasher.n_inducing = min(hasher.n_inducing, n_rows)  # more would be a warning that nobody asked for
    label = f"fitting {method}, {bits} bits, to {n_rows:,} rows of {n_features:,} features"
    began = time.perf_counter()
    with shown.Sweeps(label, getattr(hasher, "max_sweeps", None), quiet, verbose) as watch:
        if hasattr(hasher, "callback"):
            hasher.callback = watch
        if cluster is not None:
            hasher.executor = cluster
        hasher.fit(lesson.X, lesson.y)
    seconds = time.perf_counter() - began
    fingerprint = hasher.save(target, lesson.origin, lesson.descriptor)
    score = getattr(hasher, "leave_one_out_score_", None)
    traffic = getattr(hasher, "traffic_", {})
    if as_json:
        shown.emit(
            {
                "model": str(target),
                "fingerprint": fingerprint,
                "method": method,
                "data": lesson.name,
                "rows": n_rows,
                "features": n_features,
                "bits": bits,
                "seconds": seconds,
                "sweeps": len(getattr(hasher, "sweeps_", ())),
                "leave_one_out_score": score,
                "parameters": {name: value for name, value in hasher.get_params().items() if name not in NOT_HERE},
                "workers": {worker: done._asdict() for worker, done in traffic.items()},
            }
        )
        return
    told = [
        ("rows", f"{n_rows:,}"),
        ("features", f"{n_features:,}"),
        ("bits", f"{bits}"),
        ("time", shown.duration(seconds)),
    ]
    if score is not None:
        told.append(("leave-one-out score", f"{score:.4f} (log-likelihood a bit; chance is -0.6931, 0 the best)"))
    if verbose:
        told += [(f"  {phase}", shown.duration(taken)) for phase, taken in getattr(hasher, "seconds_", {}).items()]
    shown.facts(told)
    if traffic and not quiet:
        _print_traffic(traffic)
    shown.say(f"wrote {target} ({shown.size(target.stat().st_size)})")


def _print_traffic(traffic: dict[str, Any]) -> None:
    """What every worker got and did: the phases that took most of the time, and the rest together."""
    totals: dict[str, float] = {}
    for done in traffic.values():
        for phase, seconds in done.seconds.items():
            totals[phase] = totals.get(phase, 0.0) + seconds
    phases = sorted(totals, key=lambda phase: -totals[phase])[:PHASES]
    rows = []
    for worker, done in sorted(traffic.items()):
        spent = [done.seconds.get(phase, 0.0) for phase in phases]
        rest = sum(done.seconds.values()) - sum(spent)
        times = (shown.duration(seconds) for seconds in (*spent, rest))
        rows.append(shown.Cells((worker, f"{done.rows:,}", shown.size(done.received), *times)))
    titles = (phase.replace("_", " ") for phase in phases)
    shown.table(("worker", "rows, all phases", "received", *titles, "other work"), rows)


def goes_on(given: Mapping[str, Any]) -> str | None:
    """What is said after Ctrl-C of work on a folder of blocks."""
    return app.AGAIN if _is_folder_of_blocks(given["data"]) else None


@app.command(
    "gphash encode digits-16.gph digits:test -o codes.npy",
    "gphash encode photos.gph /shared/blocks -o /shared/codes --cluster tcp://10.0.0.1:8786",
    interrupted=goes_on,
)
def encode(
    model: Model,
    data: Data,
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            metavar="FILE",
            help=".npy, or .npz with probabilities; DATA-codes.npy if not given. For blocks a folder, DATA-codes.",
        ),
    ] = None,
    probabilities: Annotated[
        bool, Option("--probabilities", "-p", help="P(bit = 1) as well, in a file .npz: arrays codes, probabilities.")
    ] = False,
    cluster: ClusterAddress = None,
    threads: Threads = -1,
    data_dir: DataDir = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write the codes of rows.

    They are an array, uint8 [rows, bits / 8], packed in the order of numpy.packbits. Of a folder of blocks, every block
    NAME becomes a file NAME.codes.npy in a folder; stopped, the same command goes on with what is left.
    """
    if has_blocks(data, cluster):
        if probabilities:
            raise BadParameter(
                "--probabilities is for rows in one file; of a folder of blocks, codes alone are written."
            )
        in_bulk("codes", model, data, output or Path(f"{app.stem(data)}-codes"), cluster, threads, as_json, quiet)
        return
    import numpy as np

    from gphash import files

    wanted = ".npz" if probabilities else ".npy"
    target = output or Path(f"{app.stem(data)}-codes{wanted}")
    if target.suffix != wanted:
        what = "codes with probabilities are" if probabilities else "codes alone are"
        raise BadParameter(f"--output {str(target)!r}; {what} a file {wanted}.")
    app.destination(target, "codes", model, data)
    loaded = load(model, threads)
    if probabilities and not loaded.has_probabilities:
        raise ValueError(f"{str(model)!r} is a model of {loaded.method}, which tells no probabilities.")
    source = read(data, data_dir, threads, quiet)
    check_rows(loaded.n_features, loaded.descriptor, model, source)
    began = time.perf_counter()
    codes, chances = _encoded(loaded, source.X, probabilities, quiet)
    seconds = time.perf_counter() - began
    with files.replacing(target) as file:
        if chances is None:
            np.save(file, codes, allow_pickle=False)
        else:
            np.savez(file, codes=codes, probabilities=chances)
    n_bits = loaded.n_bits
    if as_json:
        shown.emit(
            {
                "codes": str(target),
                "rows": len(codes),
                "bits": n_bits,
                "bytes_per_row": codes.shape[1],
                "probabilities": probabilities,
                "seconds": seconds,
                "model": loaded.fingerprint,
            }
        )
        return
    told = f"{len(codes):,} rows of {n_bits} bits, {codes.shape[1]} bytes each"
    shown.say(f"wrote {target}: {told}{' and their probabilities' if probabilities else ''}")


def in_bulk(
    kind: str, model: Path, data: str, target: Path, cluster: str | None, threads: int, as_json: bool, quiet: bool
) -> None:
    """Make codes or an index of a folder of blocks, a file for every block."""
    if target.exists() and not target.is_dir():
        raise BadParameter(f"--output {str(target)!r} is a file; what is made of a folder of blocks is a folder.")
    if not target.absolute().parent.is_dir():
        raise BadParameter(f"--output {str(target)!r} lies in a folder that does not exist; make it first.")
    hasher = load_hasher(model, threads)
    from gphash import bulk

    make = {"codes": bulk.encode, "index": bulk.index}[kind]
    began = time.perf_counter()
    with shown.Meter("encoding", quiet) as progress:
        made = make(hasher, Path(data).expanduser(), target, cluster, progress)
    seconds = time.perf_counter() - began
    manifest = made.manifest
    if as_json:
        shown.emit(
            {
                kind: str(target),
                "rows": manifest.n_rows,
                "blocks": len(manifest.blocks),
                "blocks_made_now": len(manifest.blocks) - made.before,
                "bits": manifest.n_bits,
                "seconds": seconds,
                "model": manifest.model,
                "workers": {worker: share._asdict() for worker, share in made.workers.items()},
            }
        )
        return
    if cluster is not None and made.workers and not quiet:
        _print_shares(made)
    there = f", {made.before:,} of them there before" if made.before else ""
    shown.say(
        f"wrote {target}: {kind} of {manifest.n_rows:,} rows, {manifest.n_bits} bits, in {len(manifest.blocks):,} "
        f"files{there}"
    )


def _print_shares(made: "Made") -> None:
    """What every worker has done."""
    rows = []
    for worker, share in sorted(made.workers.items()):
        times = (shown.duration(seconds) for seconds in share.seconds.values())
        rows.append(shown.Cells((worker, f"{share.blocks:,}", f"{share.rows:,}", *times)))
    shown.table(("worker", "blocks", "rows", "reading", "encoding", "writing"), rows)


@app.command("gphash evaluate digits-16.gph digits:test --plots figures")
def evaluate(
    model: Model,
    data: Data,
    stored: Annotated[
        str | None,
        Option(
            metavar="DATA", help="Search among these rows; if not given, each row is searched for among the others."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="FILE", help="The report; MODEL-report.json if not given."),
    ] = None,
    plots: Annotated[Path | None, Option(metavar="FOLDER", help="Draw the figures here; needs gphash[plots].")] = None,
    radius: Annotated[int, Option(min=0, help="Of the Hamming ball in which precision is measured.")] = 2,
    threads: Threads = -1,
    data_dir: DataDir = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure how well codes find what is similar.

    Give rows that training has not seen: figures on others flatter. The report is a JSON file.
    """
    from gphash.evaluation import report

    target = app.destination(output or Path(f"{model.stem}-report.json"), "report", model, data, stored)
    hasher = load_hasher(model, threads)
    source = _judged(read(data, data_dir, threads, quiet), hasher, model)
    among = None if stored is None else _judged(read(stored, data_dir, threads, quiet), hasher, model)
    result = measure(hasher, source, among, radius)
    met = _share_met(model, source, among)
    result["protocol"]["share_of_training_rows_met"] = met
    report.write(target, result)
    written = [] if plots is None else _draw(report.read(target), plots)
    if as_json:
        files = {"report": str(target), "plots": [str(path) for path in written]}
        shown.emit({**files, "protocol": result["protocol"], "results": _figures(result["results"])})
        return
    print_figures(result)
    if met and not quiet:
        shown.remark(
            f"about {met:.0%} of the rows that the model was trained with are among these; figures on them flatter."
        )
    for path in (target, *written):
        shown.say(f"wrote {path}")


def origin_of(source: "Source") -> dict[str, Any]:
    """What a model keeps of the rows that it is learned from."""
    from gphash.evaluation import protocol

    return {"data": source.name, "rows": len(source.X), "sketch": protocol.sketch(source.X)}


def _is_folder_of_blocks(data: str) -> bool:
    """Whether DATA is a folder of blocks; a name of a known data set is that data set."""
    from gphash.datasets import blocks

    known = data.partition(":")[0] in registry.DATA_SETS
    return not known and blocks.is_folder_of_blocks(Path(data).expanduser())


def has_blocks(data: str, cluster: str | None) -> bool:
    """Whether DATA is a folder of blocks, as it must be for a cluster."""
    found = _is_folder_of_blocks(data)
    if cluster is not None and not found:
        raise ValueError(f"--cluster reads rows from {BLOCKS}, and {data!r} is none; leave it out, or give such DATA.")
    return found


def _share_met(model: Path, *sources: "Source | None") -> float | None:
    """About which share of a model's training rows is among others; None if the model does not know them."""
    from gphash import persistence, schema
    from gphash.evaluation import protocol

    origin = persistence.describe(model).remarks.get("origin")
    if origin is None or "sketch" not in origin:
        return None
    with schema.reading(model):
        return max(protocol.share_met(origin["sketch"], source.X) for source in sources if source is not None)


def load(path: Path, threads: int) -> "models.Model":
    """A model, to encode with so many threads."""
    from gphash.functions import model as models

    return models.load(path, threads)


def load_hasher(path: Path, threads: int) -> "Hasher":
    """A model as an estimator, to be evaluated or handed to workers."""
    hasher = methods.load(path)
    hasher.n_jobs = threads
    return hasher


def read(data: str, data_dir: Path | None, threads: int, quiet: bool) -> "Source":
    """DATA, with progress; what was left out is said."""
    from gphash.datasets import sources

    with shown.Meter(f"reading {data}", quiet) as progress:
        source = sources.read(data, data_dir, progress, threads)
    if source.skipped and not quiet:
        named = "; ".join(one.reason for one in source.skipped[:NAMED])
        more = f"; and {len(source.skipped) - NAMED} more" if len(source.skipped) > NAMED else ""
        shown.remark(f"gphash: left out {len(source.skipped)} file(s) of {data!r}: {named}{more}")
    return source


def check_rows(wanted: int, descriptor: "Descriptor | None", model: Path, source: "Source") -> None:
    """Refuse rows that are not like those the model was trained on."""
    from gphash.features import descriptor as descriptors

    found = source.X.shape[1]
    if wanted != found:
        raise ValueError(
            f"{source.name!r} has {found} features a row, and {str(model)!r} was trained on {wanted}; give rows of the "
            "same kind."
        )
    descriptors.check_same(descriptor, source.descriptor, str(model), source.name)


def measure(hasher: "Hasher", source: "Source", stored: "Source | None" = None, radius: int = 2) -> dict[str, Any]:
    """A report on a trained model: test rows against one another, or against stored rows."""
    import numpy as np

    from gphash.datasets import sources
    from gphash.evaluation import protocol
    from gphash.evaluation.protocol import Rows

    among = None
    name = source.name
    if stored is not None:
        name = f"{source.name} against {stored.name}"
        if np.ndim(_labels(source)) != np.ndim(_labels(stored)):
            raise ValueError(
                f"one of {source.name!r} and {stored.name!r} has labels, the other tags; give both of one kind."
            )
        stored = sources.renumber(stored, source.classes)
        source = sources.renumber(source, stored.classes)
        among = Rows(stored.X, _labels(stored))
    data = {"name": name, "features": f"{source.X.shape[1]} features", "checksum": source.checksum}
    return protocol.judge(hasher, Rows(source.X, _labels(source)), data, stored=among, radius=radius)


def _labels(source: "Source") -> Any:
    assert source.y is not None  # checked when it was read
    return source.y


def print_figures(report: dict[str, Any]) -> None:
    """The figures that most readers want."""
    results, protocol = report["results"], report["protocol"]
    shown.say(f"{protocol['queries']:,} queries among {protocol['database_rows']:,} rows, ties averaged over")
    rows = [
        shown.Cells(
            (
                {"hamming": "Hamming distance", "expected": "expected Hamming distance"}[ranking],
                _shown(results[ranking]["map"]),
                _shown(results[ranking].get("precision_within_radius")),
                _shown(results[ranking]["precision_at_k"].get("10")),
            )
        )
        for ranking in protocol["rankings"]
    ]
    shown.table(("ranked by", "mAP", f"precision within {protocol['radius']}", "precision at 10"), rows)
    codes = results["codes"]
    shown.say(
        f"{codes['distinct_codes']:,} distinct codes, {codes['largest_bucket']:,} rows in the largest bucket; "
        f"{report['method']['encoding_microseconds']:.1f} µs to encode a row"
    )


def _shown(figure: float | None) -> str:
    return "–" if figure is None else f"{figure:.4f}"


def _hasher(
    method: str,
    bits: int,
    seed: int,
    threads: int,
    given: dict[str, Any],
    checkpoint: Path | None,
    cluster: str | None,
) -> "Hasher":
    """A method with its parameters, all of them checked before any row is read."""
    kind = methods.find(method)
    known = set(kind().get_params(deep=False))
    for name in given:
        if name in ELSEWHERE:
            raise BadParameter(f"--set {name}: give {ELSEWHERE[name]} instead.")
        if name not in known - NOT_HERE:
            raise ValueError(f"unknown parameter {name!r}; {method} has {', '.join(sorted(known - NOT_HERE))}.")
    if checkpoint is not None and "checkpoint" not in known:
        keeping = [name for name, other in methods.METHODS.items() if "checkpoint" in other().get_params(deep=False)]
        raise ValueError(f"{method} keeps no checkpoints ({', '.join(keeping)} does); leave --checkpoint out.")
    if cluster is not None and "executor" not in known:
        raise ValueError(f"{method} trains on one machine, and gph on a cluster, too; leave --cluster out.")
    kept = {} if checkpoint is None else {"checkpoint": checkpoint}
    hasher = kind(n_bits=bits, random_state=seed, n_jobs=threads, **given, **kept)
    nothing: Any = None
    try:
        hasher.fit(nothing)
    except ValueError as error:
        # Methods look at their parameters before they look at rows.
        if not str(error).startswith("X is None"):
            raise
    return hasher


def _lesson(hasher: "Hasher", method: str, source: "Source") -> Lesson:
    """Rows that are here."""
    taught = _supervision(hasher, method, source)
    n_rows, n_features = source.X.shape
    return Lesson(source.name, source.X, taught, (n_rows, n_features), origin_of(source), source.descriptor)


def _lesson_of_blocks(hasher: "Hasher", method: str, data: str) -> Lesson:
    """Rows of a folder, which stay there; of them only the labels are read."""
    from gphash.datasets import blocks

    if not hasattr(hasher, "executor"):
        raise ValueError(f"{method} needs all rows at hand, and {data!r} is a folder of blocks, which gph learns from.")
    table = blocks.open_folder(data)
    labels = table.labels()
    if labels is None:
        raise ValueError(
            f"{data!r} has neither labels nor tags to learn from; wanted are NAME.labels.npy beside .npy blocks, a "
            "column label or tags in .parquet blocks, or y or tags in a Zarr group."
        )
    origin = {"data": data, "rows": table.n_rows}
    return Lesson(data, table.folder, labels.y, (table.n_rows, table.n_features), origin)


def _supervision(hasher: "Hasher", method: str, source: "Source") -> Any:
    """What to learn from; a method that cannot is told apart from those that can."""
    if not hasher.takes:
        return None
    taught = source.supervision
    if taught is None:
        others = [name for name, kind in methods.METHODS.items() if not kind.takes]
        raise ValueError(
            f"{source.name!r} has neither labels nor tags nor pairs for {method} to learn from; give DATA with them, "
            f"or a --method that learns without: {', '.join(others)}."
        )
    kind = "pairs" if source.y is None else "labels" if source.y.ndim == 1 else "tags"
    if kind not in hasher.takes:
        others = [name for name, one in methods.METHODS.items() if kind in one.takes]
        raise ValueError(
            f"{source.name!r} has {kind}, and {method} learns from {' or '.join(hasher.takes)} only; "
            f"a --method that learns from {kind}: {', '.join(others)}."
        )
    return taught


def _encoded(
    loaded: "models.Model", X: "NDArray[np.float32]", probabilities: bool, quiet: bool
) -> "tuple[NDArray[np.uint8], NDArray[Any] | None]":
    """Codes, and probabilities if wanted, a block of rows at a time."""
    import numpy as np

    codes, chances = [], []
    with shown.Meter("encoding", quiet) as progress:
        for start in range(0, len(X), BLOCK):
            some = X[start : start + BLOCK]
            codes.append(loaded.encode(some))
            if probabilities:
                chances.append(loaded.bit_probabilities(some).astype(np.float32))
            progress(min(start + BLOCK, len(X)), len(X))
    return np.concatenate(codes), np.concatenate(chances) if probabilities else None


def _judged(source: "Source", hasher: "Hasher", model: Path) -> "Source":
    """Rows that can be judged by labels or tags."""
    if source.y is None:
        raise ValueError(f"{source.name!r} has neither labels nor tags to judge by; give DATA that has.")
    check_rows(hasher.hash_function_.n_features, hasher.descriptor_, model, source)
    return source


def _figures(results: dict[str, Any]) -> dict[str, Any]:
    """Results without curves and single bits, which the report has."""
    return {
        name: {key: value for key, value in part.items() if key not in ("curve", "bits")}
        for name, part in results.items()
    }


def _draw(report: dict[str, Any], folder: Path) -> list[Path]:
    """Figures of a report, as files of a folder."""
    from gphash.evaluation import canvas, plots

    for name in ("precision-recall", "codes", "training"):
        for suffix in (".svg", ".png"):
            app.expect(folder / f"{name}{suffix}")
    written = canvas.save(plots.precision_recall([report]), folder / "precision-recall")
    written += canvas.save(plots.codes(report), folder / "codes")
    if report["method"]["sweeps"]:
        written += canvas.save(plots.training_trace(report), folder / "training")
    return written
