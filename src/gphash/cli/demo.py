"""The command that shows it all: demo."""

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

from gphash.cli import app, shown, training
from gphash.cli.app import Debug, Json, Option, Quiet, Seed, Threads

BITS = 16
FOLDER = Path("gphash-demo")


@app.command("gphash demo")
def demo(
    output: Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="Where everything is written.")] = FOLDER,
    seed: Seed = 0,
    threads: Threads = -1,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Handwritten digits, from rows to a page.

    Learns 16 bits, measures them on rows never seen, indexes all digits, and ends with the command that opens the page.
    """
    from gphash.evaluation import report
    from gphash.gallery.gallery import Gallery
    from gphash.methods import find

    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {str(output)!r} is a file; give the name of a folder.")
    model, measured, index = output / "digits.gph", output / "report.json", output / "digits.index"
    for path, kind in ((model, "model"), (measured, "report"), (index, "index")):
        if output.exists():
            app.destination(path, kind)
        app.expect(path)
    train, test, everything = (
        training.read(name, None, threads, quiet) for name in ("digits:train", "digits:test", "digits")
    )
    hasher = find("gph")(n_bits=BITS, n_inducing=300, random_state=seed, n_jobs=threads)
    label = f"fitting gph, {BITS} bits, to {len(train.X):,} digits"
    began = time.perf_counter()
    with shown.Sweeps(label, hasher.get_params()["max_sweeps"], quiet, False) as watch:
        hasher.set_params(callback=watch).fit(train.X, train.y)
    seconds = time.perf_counter() - began
    output.mkdir(parents=True, exist_ok=True)
    hasher.save(model, training.origin_of(train), train.descriptor)
    result = training.measure(hasher, test)
    report.write(measured, result)
    with Gallery.build(index, model, everything) as gallery:
        stats = gallery.index.stats()
        # The page's first search would compile what this one does.
        query = gallery.query(id=0)
        for ranking in ("hamming", "expected"):
            gallery.search(query, ranking=ranking)
    serve = shlex.join([_program(), "serve", str(index)])
    if as_json:
        shown.emit(
            {
                "model": str(model),
                "report": str(measured),
                "index": str(index),
                "map": result["results"]["hamming"]["map"],
                "seconds": seconds,
                "items": stats.n_items,
                "serve": serve,
            }
        )
        return
    shown.say(f"{model}: {BITS} bits learned from {len(train.X):,} digits in {shown.duration(seconds)}")
    shown.say(f"{measured}: on {len(test.X):,} digits never seen,")
    training.print_figures(result)
    shown.say(f"{index}: {stats.n_items:,} digits on {stats.n_codes:,} distinct codes")
    shown.say("See it in the browser:")
    shown.say(f"  {serve}", "bold")


def _program() -> str:
    """How to call this program from here: an environment that is not activated is named."""
    called = Path(sys.argv[0])
    found = shutil.which("gphash")
    if called.stem != "gphash" or (found is not None and Path(found).resolve() == called.resolve()):
        return "gphash"
    return str(called)
