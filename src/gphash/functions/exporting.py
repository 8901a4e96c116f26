"""A model as one ONNX file: rows in; packed codes, and what the model knows of probabilities, out.

An encoder's own graph may come first: then pixels or tokens go in, and its embeddings, the rows, come out as well.

The graph is compared with the model before anything is written. Codes must be equal but for bits in doubt: those whose
margin is so near to zero that another order of sums may turn them.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash import files
from gphash.arrays import Floats
from gphash.codes import packing
from gphash.data.descriptors import networks
from gphash.data.descriptors.descriptor import Descriptor
from gphash.functions import model as models
from gphash.functions import onnx_encoders, onnx_graph
from gphash.functions.model import Function
from gphash.functions.onnx_encoders import EncoderGraph
from gphash.functions.onnx_forms import GRAPHS, FormGraph
from gphash.functions.onnx_graph import Graph, Shape, Symbol

TRIED = 4096  # rows
NEARLY = 1e-3  # that probabilities may differ by, besides what rounding explains

_OURS = {"bit_probabilities": "probabilities", "class_probabilities": "classes"}


class Exported(NamedTuple):
    """What was written, and how it compares with the model."""

    inputs: list[str]
    outputs: list[str]
    n_rows: int  # that both have encoded
    n_doubtful: int  # bits of them with a sign in doubt
    n_different: int  # of these, how many are not equal
    probability_error: float  # the most that a probability differs by


def export(
    function: Function,
    path: str | os.PathLike[str],
    fingerprint: str,
    classes: Sequence[Any] | None = None,
    *,
    codes_only: bool = False,
    behind: EncoderGraph | None = None,
    trained: Descriptor | None = None,
) -> Exported:
    """Write a hash function as an ONNX file, once it has been seen to give the same codes.

    Parameters
    ----------
    function
        Of any form that has a graph.
    path
        The file. Only a graph of gphash is replaced, and only by a complete one.
    fingerprint
        Of the model; the file's metadata holds it.
    classes
        Names of the classes or tags, in the order of their probabilities, for the metadata.
    codes_only
        Leave probabilities out.
    behind
        An encoder to put in front.
    trained
        How the rows were made that the model was trained on, if that is known: an encoder must be the same.
    """
    check_replaceable(path)
    behind = None if behind is None else onnx_encoders.as_trained(behind, trained)
    told = {"gphash_fingerprint": fingerprint, "gphash_bits": str(function.n_bits)}
    if classes is not None:
        told["gphash_classes"] = json.dumps([str(name) for name in classes])
    content = draw(function, told, codes_only).SerializeToString()
    X = form_of(function).probes(function, TRIED, np.random.default_rng(0))
    found = compare(function, session(content), {"rows": X})
    if behind is not None:
        content = draw(function, told, codes_only, behind).SerializeToString()
        run = session(content)
        found = _together(compare(function, run, onnx_encoders.sample(behind, run)), found)
    with files.replacing(path) as file:
        file.write(content)
    return found


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Refuse to write over anything but a graph of gphash, or an empty file."""
    files.check_replaceable(path, "ONNX graph of gphash", onnx_graph.is_ours)


def draw(
    function: Function, told: Mapping[str, str], codes_only: bool = False, behind: EncoderGraph | None = None
) -> Any:
    """The graph of a hash function, as a `ModelProto` with such metadata."""
    if behind is None:
        graph = Graph()
        rows = graph.input("rows", np.float32, ("n", function.n_features))
    else:
        graph, rows = onnx_encoders.embedded(behind, function.n_features)
    found = form_of(function).outputs(function, rows, codes_only)
    outputs: dict[str, tuple[Symbol, Shape]] = {"codes": _packed(found["margins"], function.n_bits)}
    for name in _OURS:
        if name in found:
            side = function.n_bits if name == "bit_probabilities" else "classes"
            outputs[name] = found[name].astype(np.float32), ("n", side)
    if behind is not None:
        outputs["rows"] = rows, ("n", function.n_features)
    return graph.model(outputs, told)


def session(model: bytes | str) -> Any:
    """What runs a graph, from the content of a file or its name."""
    runtime = networks.onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # what is raised need not be printed as well
    try:
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own, which have no common kind
        raise ValueError(f"onnxruntime cannot load the graph: {error}") from error


def compare(function: Function, run: Any, given: Mapping[str, NDArray[Any]]) -> Exported:
    """Encode by the graph and by the function; a ValueError if they differ where nothing is in doubt."""
    names = [one.name for one in run.get_outputs()]
    try:
        found = dict(zip(names, run.run(names, dict(given)), strict=True))
    except Exception as error:  # onnxruntime's own
        raise ValueError(f"the graph does not run: {error}. If it needs other inputs, give a sample.") from error
    X: Floats = found["rows"] if "rows" in found else given["rows"]
    if not (len(X) and np.isfinite(X).all()):
        raise ValueError("the encoder gives no rows, or NaN or infinity; give a sample of inputs that it knows.")
    bits, form, ours = packing.unpack(found["codes"], function.n_bits), form_of(function), function
    differs, doubtful = bits != (function.margins(X) >= 0), form.doubtful(function, X)
    if wrong := int((differs & ~doubtful).sum()):
        raise ValueError(f"of {bits.size} bits, the graph has {wrong} other ones than the model; nothing was written.")
    known = [(found[name], getattr(ours, of)(X)) for name, of in _OURS.items() if name in found]
    most = max((float(np.abs(one - other).max()) for one, other in known), default=0.0)
    if not most <= NEARLY + form.slack(function):
        raise ValueError(f"the graph's probabilities are up to {most:.2g} off the model's; nothing was written.")
    inputs = [one.name for one in run.get_inputs()]
    return Exported(inputs, names, len(X), int(doubtful.sum()), int(differs.sum()), most)


def _together(one: Exported, other: Exported) -> Exported:
    return one._replace(
        n_rows=one.n_rows + other.n_rows,
        n_doubtful=one.n_doubtful + other.n_doubtful,
        n_different=one.n_different + other.n_different,
        probability_error=max(one.probability_error, other.probability_error),
    )


def form_of(function: Function) -> FormGraph:
    """How functions of its form become graphs."""
    name = models.FORMS.name_of(type(function))
    if name not in GRAPHS:
        raise ValueError(f"functions of the form {name!r} have no ONNX graph; those of {', '.join(GRAPHS)} have.")
    return GRAPHS[name]()


def _packed(margins: Symbol, n_bits: int) -> tuple[Symbol, Shape]:
    """Bits, eight to a byte, by a product with powers of two, which float32 holds exactly."""
    places, digits = np.arange(n_bits), np.zeros((n_bits, -(-n_bits // 8)))
    digits[places, places // 8] = 2.0 ** (7 - places % 8)
    bits = np.greater_equal(margins, 0.0).astype(np.float32)
    return (bits @ digits).astype(np.uint8), ("n", digits.shape[1])
