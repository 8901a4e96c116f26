"""The command that writes a model for other runtimes: export."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Option

from gphash.cli import app, outputs, shown
from gphash.cli.options import Model, output

if TYPE_CHECKING:
    from gphash.functions.onnx_encoders import EncoderGraph

BEHIND = "An encoder as an ONNX file, to put in front: pixels or tokens go in, and codes come out."
OUTPUT = "Output of the encoder that is a row; if not given, the first that has the model's number of features."
POOLING = "How tokens become a row: mean, by the attention mask, or cls, the first token; if not given, mean."
NORMALIZE = "Give the encoder's rows unit length; do so if the model was trained on rows of unit length."
SAMPLE = "Inputs of the encoder to try it on, an array each, by name; if not given, they are made up."


@app.command(
    "gphash export digits-16.gph -o digits.onnx",
    "gphash export news.gph --behind minilm.onnx --pooling mean --normalize",
    "gphash export photos.gph --behind resnet50.onnx --encoder-output embedding",
)
def export(
    model: Model,
    path: Annotated[
        Path | None, output("The file; MODEL.onnx if not given. A graph of gphash there is replaced.")
    ] = None,
    codes_only: Annotated[bool, Option("--codes-only", help="Leave probabilities out.")] = False,
    behind: Annotated[Path | None, Option(metavar="FILE", help=BEHIND)] = None,
    encoder_output: Annotated[str | None, Option(metavar="NAME", help=OUTPUT)] = None,
    pooling: Annotated[str | None, Option(help=POOLING)] = None,
    normalize: Annotated[bool, Option("--normalize", help=NORMALIZE)] = False,
    sample: Annotated[Path | None, Option(metavar="FILE.npz", help=SAMPLE)] = None,
) -> None:
    """Write a model as an ONNX file, to encode in any runtime.

    The input is rows, float32. The outputs are codes, packed as gphash encode writes them, and, if the method knows
    them, bit_probabilities and class_probabilities; names of classes and the model's fingerprint are in the metadata.
    Behind an encoder, the inputs are the encoder's, and its rows are one more output. A model that was trained with
    --descriptor PATH knows its encoder: another one is refused, and output, pooling and length are as in training.

    Before anything is written, the graph and the model encode the same rows. Codes must be equal but for bits in doubt:
    those whose sign depends on the order in which float32 numbers are added.
    """
    from gphash.functions import exporting
    from gphash.functions import model as models

    target = outputs.file(path or Path(f"{model.stem}.onnx"), "graph", model, behind, sample)
    encoder = _encoder(behind, output=encoder_output, pooling=pooling, normalize=normalize, sample=sample)
    began, learned = time.perf_counter(), models.load(model)
    names = learned.class_names
    mark = learned.fingerprint
    how: dict[str, Any] = {"codes_only": codes_only, "behind": encoder, "trained": learned.descriptor}
    found = exporting.export(learned.function, target, mark, names, **how)
    told: dict[str, Any] = {"file": target, "bytes": target.stat().st_size, "fingerprint": mark, **found._asdict()}
    told["seconds"] = time.perf_counter() - began
    if shown.answer(told, ""):
        doubt = f"{found.n_doubtful:,} bits in doubt, {found.n_different:,} of them different"
        shown.say(f"codes are equal on {found.n_rows:,} rows ({doubt})")
        if found.probability_error:
            shown.say(f"probabilities differ by at most {found.probability_error:.1e}")
        if learned.descriptor is not None and encoder is None:
            shown.remark(f"the model was trained on {learned.descriptor}: the graph takes such rows, not pictures.")
        shown.say(f"inputs {', '.join(found.inputs)}; outputs {', '.join(found.outputs)}")
        shown.say(f"wrote {target} ({shown.size(told['bytes'])})")


def _encoder(path: Path | None, **how: Any) -> "EncoderGraph | None":
    """What --behind and the options that need it say."""
    from gphash.functions import onnx_encoders

    with app.usage():
        onnx_encoders.check_pooling(how["pooling"])
    if path is None:
        for name, option in (("output", "--encoder-output"), ("normalize", "--normalize"), ("sample", "--sample")):
            if how[name]:
                raise BadParameter(f"{option} is about an encoder; give one by --behind.")
        return None
    if how["sample"] is not None:
        how["sample"] = onnx_encoders.read_sample(how["sample"])
    return onnx_encoders.EncoderGraph(path, **how)
