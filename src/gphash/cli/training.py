"""Commands about models: fit, evaluate."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Option

from gphash.cli import app, options, outputs, shown
from gphash.cli.options import (
    Cluster,
    Data,
    DataDir,
    Describe,
    EncoderOption,
    EncoderPath,
    Model,
    Seed,
    Set,
    Threads,
    output,
    whole,
)
from gphash.data.headers import UNSAID, Roles
from gphash.hashers import methods

if TYPE_CHECKING:
    from gphash.data.sources import Source
    from gphash.hashers.contract import Hasher

METHOD = f"One of {', '.join(methods.METHODS)}."
RECALL = (
    "Measure how many of the 10 nearest rows by cosine are among the first candidates of the codes, and suggest how "
    "many to take for gphash search --rerank."
)
STORED = "Search among these rows; else among the other rows of DATA."

Checkpoint = Annotated[Path | None, Option(help="File that keeps the state of training, to go on if interrupted.")]


@app.command(
    "gphash fit digits:train --bits 16",
    "gphash fit photos/ -o photos.gph --checkpoint photos.run",
    "gphash fit texts.npz --bits auto",
    "gphash fit photos/ --descriptor bag-of-words --set kernel=matern-3/2",
    "gphash fit reviews.csv --text-column body --descriptor all-MiniLM-L6-v2/",
    "gphash fit /shared/blocks --cluster tcp://10.0.0.1:8786",
    interrupted=lambda given: app.AGAIN if given["checkpoint"] else None,
)
@options.with_columns
def fit(
    data: Data,
    n_bits: options.Length = 32,
    method: Annotated[str, Option("--method", "-m", help=METHOD, autocompletion=options.complete_method)] = "gph",
    path: Annotated[Path | None, output("The model; DATA-BITS.gph if not given. A model there is replaced.")] = None,
    option: Set = None,
    checkpoint: Checkpoint = None,
    descriptor: Describe = None,
    encoder_options: EncoderOption = None,
    executor: Cluster = None,
    random_state: Seed = 0,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Show more detail.")] = False,
    roles: Roles = UNSAID,
) -> None:
    """Learn codes from rows, and write the model.

    Rows come with class labels, tags or judged pairs; some methods need none. The model is one file. For more rows than
    one machine can hold, DATA is a folder of blocks: .npy files with NAME.labels.npy beside them, .parquet files, or a
    Zarr array. The blocks stay where they are, and with --cluster its workers read them.
    """
    given = options.settings(option)
    with app.usage():
        hasher = make_hasher(
            method, given, n_bits=n_bits or options.MOST_BITS, random_state=random_state, n_jobs=n_jobs
        )
    where: dict[str, Any] = {"executor": executor, "checkpoint": checkpoint}
    for name, value in where.items():
        if value is not None and name not in hasher.runs_with:
            raise BadParameter(f"{name}={str(value)!r}: {method} trains without it; leave it out, or use --method gph.")
    target = path or Path(f"{outputs.stem(data)}{'' if method == 'gph' else f'-{method}'}-{n_bits or 'auto'}.gph")
    outputs.file(target, "model", data, checkpoint)
    if options.has_blocks(data, executor):
        options.refuse_descriptor(descriptor)
        lesson = _lesson_of_blocks(hasher, method, data, roles)
    else:
        source = options.read(data, data_dir, n_jobs, descriptor, roles, encoder_options)
        lesson = _lesson(hasher, method, source)
    X, y, (n_rows, n_features), *about = lesson
    if hasattr(hasher, "n_inducing") and "n_inducing" not in given:
        hasher.n_inducing = min(hasher.n_inducing, n_rows)  # more would be a warning that nobody asked for
    if not n_bits:
        n_bits = hasher.n_bits = _suggested(hasher, lesson)
    most = getattr(hasher, "max_sweeps", None)
    began = time.perf_counter()
    with shown.Meter(f"fitting {method}") as meter:
        meter.show(0, None, "", f"{meter.label}, {n_bits} bits, to {n_rows:,} rows of {n_features:,} features")
        where["callback"] = lambda sweep: meter.sweep(sweep, most, verbose)
        hasher.fit(X, y, **{name: value for name, value in where.items() if name in hasher.runs_with})
    _name_classes(hasher, about[0].get("classes"))
    told: dict[str, Any] = {"rows": n_rows, "features": n_features, "bits": n_bits}
    told |= {"seconds": time.perf_counter() - began, "method": method, "data": data}
    _tell_fit(hasher, told | {"model": target, "fingerprint": hasher.save(target, *about)}, verbose)


def _suggested(hasher: "Hasher", lesson: tuple[Any, ...]) -> int:
    """How many bits to take, and a line that says why."""
    import numpy as np

    from gphash.hashers.gp import GPHasher
    from gphash.paper import lengths

    X, y, *_ = lesson
    if not isinstance(hasher, GPHasher) or not isinstance(X, np.ndarray) or isinstance(y, tuple) or y is None:
        raise BadParameter(
            "--bits 'auto' needs --method gph and rows in memory that have labels or tags; give a number."
        )
    with shown.Meter("choosing the number of bits") as meter:
        meter.show(0, None, "", f"{meter.label}, on rows held out")
        found = lengths.suggest(hasher, X, y, watch=lambda sweep: meter.sweep(sweep, hasher.max_sweeps, False))
    shown.remark(f"{found.n_bits} bits: {found.reason}")
    return found.n_bits


def _name_classes(hasher: "Hasher", names: list[str] | None) -> None:
    """Let a model know what the classes are called that it was taught by their numbers."""
    import numpy as np

    if names and getattr(hasher, "class_names_", None) is not None:
        hasher.classes_ = np.array(names)[hasher.classes_]


def make_hasher(method: str, given: dict[str, Any], **own: Any) -> "Hasher":
    """A method with its parameters, all of them checked before any row is read."""
    kind, elsewhere = methods.METHODS.find(method), app.options_of(fit)
    known = set(kind().get_params(deep=False)) - set(elsewhere)
    for name in given:
        if name in elsewhere:
            raise BadParameter(f"--set {name!r}: give {elsewhere[name]} instead.")
        if name not in known:
            raise BadParameter(f"--set {name!r}: {method} has {', '.join(sorted(known))}.")
    hasher: Hasher = kind(**own, **given)
    hasher.check_parameters()
    return hasher


def _lesson(hasher: "Hasher", method: str, source: "Source") -> tuple[Any, ...]:
    """Rows, supervision, shape, what the model keeps of them, and how they were described.

    A method that cannot learn from such rows is told apart from those that can.
    """
    from gphash.evaluation import protocol

    kind = options.supervision_of(source.y, source.pairs)
    if hasher.takes and kind not in hasher.takes:
        has = "neither labels nor tags nor pairs" if kind == "none" else kind
        others = [name for name, one in methods.METHODS.items() if kind in one.takes or not one.takes]
        column = "name the column of the labels (--label-column), " if kind == "none" else ""
        raise ValueError(
            f"{source.name!r} has {has}, and {method} learns from {' or '.join(hasher.takes)}; {column}give other "
            f"DATA, or a --method that can learn from it: {', '.join(others)}."
        )
    origin: dict[str, Any] = {"data": source.name, "rows": len(source.X), "sketch": protocol.sketch(source.X)}
    origin["classes"] = list(source.classes)
    return source.X, source.supervision if hasher.takes else None, source.X.shape, origin, source.descriptor


def _lesson_of_blocks(hasher: "Hasher", method: str, data: str, roles: Roles) -> tuple[Any, ...]:
    """The same of a folder, where rows stay; of them only the labels are read."""
    if "executor" not in hasher.runs_with:
        raise ValueError(f"{method} needs all rows in memory, and {data!r} is a folder of blocks; use --method gph.")
    table = options.open_blocks(data, roles)
    if (labels := table.labels()) is None:
        raise ValueError(
            f"{data!r} has neither labels nor tags to learn from; give NAME.labels.npy beside .npy blocks, a column "
            "label or tags in .parquet blocks, or y or tags in a Zarr group."
        )
    return (
        table,
        labels.y,
        (table.n_rows, table.n_features),
        {"data": data, "rows": table.n_rows, "classes": list(labels.classes)},
    )


def _tell_fit(hasher: "Hasher", told: dict[str, Any], verbose: bool) -> None:
    traffic = getattr(hasher, "traffic_", {})
    told["sweeps"] = len(getattr(hasher, "sweeps_", ()))
    told["leave_one_out_score"] = getattr(hasher, "leave_one_out_score_", None)
    elsewhere = app.options_of(fit)
    told["parameters"] = {name: value for name, value in hasher.get_params().items() if name not in elsewhere}
    told["workers"] = {worker: vars(done) for worker, done in traffic.items()}
    if shown.answer(told, ""):
        phases = getattr(hasher, "seconds_", {}) if verbose else {}
        shown.facts(
            {name: told[name] for name in ("rows", "features", "bits", "seconds", "leave_one_out_score")}
            | {f"  {phase}": shown.duration(taken) for phase, taken in phases.items()}
        )
        shown.workers(traffic)
        shown.say(f"wrote {told['model']} ({shown.size(told['model'].stat().st_size)})")


@app.command(
    "gphash evaluate digits-16.gph digits:test --plots figures",
    "gphash evaluate texts.gph new-embeddings.npy --stored embeddings.npy --recall",
)
@options.with_columns
def evaluate(
    model: Model,
    data: Data,
    stored: Annotated[str | None, Option(metavar="DATA", help=STORED)] = None,
    path: Annotated[Path | None, output("The report; MODEL-report.json if not given.")] = None,
    plots: Annotated[Path | None, Option(help="Folder to draw figures in; needs matplotlib.")] = None,
    radius: Annotated[int, whole("--radius", least=0, help="Radius of the ball in which precision is measured.")] = 2,
    encoder: EncoderPath = None,
    recall: Annotated[bool, Option("--recall", help=RECALL)] = False,
    n_jobs: Threads = -1,
    data_dir: DataDir = None,
    roles: Roles = UNSAID,
) -> None:
    """Measure how well codes find what is similar.

    Give rows that training has not seen: figures on others flatter. The last table says how gphash search keeps
    --precision and --recall. The report is a JSON file. With --recall, rows need no labels.
    """
    from gphash import container, schema
    from gphash.evaluation import candidates, protocol, report
    from gphash.hashers.contract import load

    target = outputs.file(path or Path(f"{model.stem}-report.json"), "report", model, data, stored)
    hasher = load(model)
    hasher.n_jobs = n_jobs
    options.place_encoder(encoder, hasher.descriptor_, model)
    places = [one for one in (data, stored) if one is not None]
    sources = [options.labelled(options.read(one, data_dir, n_jobs, hasher.descriptor_, roles)) for one in places]
    for source in sources:
        if source.y is None and (plots is not None or not recall):
            raise ValueError(
                f"{source.name!r} has neither labels nor tags to judge by; give --label-column or --recall."
            )
        options.check_rows(hasher.hash_function_.n_features, hasher.descriptor_, model, source)
    result = (_unlabelled if any(one.y is None for one in sources) else _judged)(hasher, radius, *sources)
    if recall:
        result["results"]["candidates"] = candidates.recall(hasher, *(one.X for one in sources))
    origin = container.describe(model).remarks.get("origin") or {}
    with schema.reading(model):  # a model of blocks does not know its rows
        met = max(protocol.share_met(origin["sketch"], one.X) for one in sources) if "sketch" in origin else None
    result["protocol"]["share_of_training_rows_met"] = met
    if met and stored is not None:
        result["protocol"]["name"] = protocol.LEAKY
    report.write(target, result)
    written = [] if plots is None else _draw(report.read(target), plots)
    # Curves and single bits are in the report.
    figures = {
        name: {key: value for key, value in part.items() if key not in ("curve", "bits")}
        for name, part in result["results"].items()
    }
    told = {"report": target, "plots": written, "protocol": result["protocol"], "results": figures}
    if shown.answer(told, ""):
        _print_figures(result)
        _print_candidates(result["results"].get("candidates"))
        if met:
            shown.remark(
                f"about {met:.0%} of the model's training rows are among these, which is leaky: figures flatter."
            )
        for one in (target, *written):
            shown.say(f"wrote {one}")


def _judged(hasher: "Hasher", radius: int, source: "Source", stored: "Source | None" = None) -> dict[str, Any]:
    """A report on a trained model: test rows against one another, or against stored rows; both have labels."""
    import numpy as np

    from gphash.data import sources
    from gphash.data.dataset import Split
    from gphash.evaluation import protocol

    data = {"name": source.name, "features": f"{source.X.shape[1]} features", "checksum": source.checksum}
    if getattr(hasher, "class_names_", None) is not None:
        source = sources.renumber(source, tuple(map(str, hasher.classes_)))
        hasher.classes_ = np.arange(len(hasher.classes_))
    if stored is not None:
        data["name"] = f"{source.name} against {stored.name}"
        stored = sources.renumber(stored, source.classes)
        source = sources.renumber(source, stored.classes)
    rows, among = (None if one is None else Split(one.X, one.y) for one in (source, stored))  # type: ignore[arg-type]
    return protocol.judge(hasher, rows, data, stored=among, radius=radius)  # type: ignore[arg-type]


def _unlabelled(hasher: "Hasher", radius: int, source: "Source", stored: "Source | None" = None) -> dict[str, Any]:
    """A report without any judgement: on rows that have no labels."""
    from gphash.evaluation import protocol, report

    places = source.name if stored is None else f"{source.name} against {stored.name}"
    data = {"name": places, "features": f"{source.X.shape[1]} features", "checksum": source.checksum}
    method = {"name": type(hasher).__name__, "parameters": protocol.parameters(hasher)}
    n_rows = len(source.X) - 1 if stored is None else len(stored.X)
    asked = {"name": "rows without labels", "queries": len(source.X), "database_rows": n_rows, "rankings": []}
    return report.make(asked, data, method, {})


def _print_candidates(found: dict[str, Any] | None) -> None:
    """Recall for every number of candidates, and how many to take."""
    from gphash.evaluation.protocol import RANKED_BY

    if found is None:
        return
    sentence = "of the {nearest} nearest of {database_rows:,} rows by {metric}, so many are among the first candidates "
    shown.say((sentence + "({queries:,} queries)").format_map(found))
    depths = [*found["recall"]["hamming"]]
    rows = [(RANKED_BY[name], *(f"{value:.3f}" for value in one.values())) for name, one in found["recall"].items()]
    shown.table(("ranked by", *(f"{int(depth):,}" for depth in depths)), rows)
    for goal in found["suggested"]["hamming"]:
        name = min(found["suggested"], key=lambda one: found["suggested"][one][goal])
        how = "" if name == "hamming" else f" --ranking {name}"
        shown.say(f"for a recall of {goal}: gphash search --rerank {found['suggested'][name][goal]}{how}")


def _print_figures(report: dict[str, Any]) -> None:
    """The figures that most readers look for."""
    if not report["protocol"]["rankings"]:
        return
    from gphash.evaluation.metrics import METRICS
    from gphash.evaluation.protocol import RANKED_BY

    results, protocol = report["results"], report["protocol"]
    shown.say("{queries:,} queries among {database_rows:,} rows, ties averaged over".format_map(protocol))
    first = results[protocol["rankings"][0]]
    metrics = {
        name: metric.name for name, metric in METRICS.everything().items() if not isinstance(first.get(name), dict)
    }
    rows = []
    for ranking in protocol["rankings"]:
        found = results[ranking]
        figures = (*(found.get(name) for name in metrics), found["precision_at_k"].get("10"))
        rows.append((RANKED_BY[ranking], *("–" if one is None else f"{one:.4f}" for one in figures)))
    titles = (name.replace("the radius", str(protocol["radius"])) for name in metrics.values())
    shown.table(("ranked by", *titles, "precision at 10"), rows)
    _tell_trust(results)
    told = results["codes"] | {"taken": report["method"]["encoding_microseconds"]}
    sentence = "{distinct_codes:,} distinct codes, {largest_bucket:,} rows in the largest bucket; "
    shown.say((sentence + "{taken:.1f} µs to encode a row").format_map(told))


def _tell_trust(results: dict[str, Any]) -> None:
    """How far probabilities can be trusted."""
    errors = {"bits": results.get("calibration"), "P(similar)": results.get("similarity", {}).get("calibration")}
    found = [f"{name} {one['calibration_error']:.4f}" for name, one in errors.items() if one is not None]
    if found:
        shown.say(f"calibration error: {', '.join(found)}")
    if (kept := results.get("similarity", {}).get("promises")) is not None:
        levels = [name.removeprefix("recall_") for name in kept if name.startswith("recall_")]
        columns = {"precision": "precision_", "queries answered": "answered_", "recall": "recall_"}
        lines = [[kept[f"{name}{level}"] for name in columns.values()] for level in levels]
        texts = [["–" if one is None else f"{one:.3f}" for one in figures] for figures in lines]
        shown.table(("promised", *columns), [(level, *row) for level, row in zip(levels, texts, strict=True)])
        if (strange := kept.get("nothing_similar")) is not None:
            shown.say(f"nothing similar is said of {strange:.1%} of the queries")


def _draw(report: dict[str, Any], folder: Path) -> list[Path]:
    """Figures of a report, as files of a folder."""
    from gphash.evaluation import canvas, plots

    drawings: dict[str, Any] = {"precision-recall": lambda one: plots.precision_recall([one]), "codes": plots.codes}
    if "similarity" in report["results"]:
        drawings["trust"] = plots.trust
    if report["method"].get("sweeps"):
        drawings["training"] = plots.training_trace
    for name in drawings:
        for suffix in (".svg", ".png"):
            outputs.expect(folder / f"{name}{suffix}")
    return [path for name, draw in drawings.items() for path in canvas.save(draw(report), folder / name)]
