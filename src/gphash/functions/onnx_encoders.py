"""Encoders in front of a model: their own ONNX graphs, from pixels or tokens to the rows that the model takes."""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.data.dataset import file_digest
from gphash.data.descriptors.descriptor import Descriptor
from gphash.data.descriptors.picture_encoder import PictureEncoder
from gphash.data.descriptors.text_encoder import TextEncoder
from gphash.functions import onnx_graph
from gphash.functions.onnx_graph import Graph, Symbol

POOLINGS = ("mean", "cls")
LEAST_LENGTH = 1e-12
ROWS, TOKENS, WORDS, CHANNELS, PIXELS = 8, 16, 100, 3, 224  # of what is made up, where an encoder leaves them open

_NUMBERS = {"float": "f4", "double": "f8", "float16": "f2", "int64": "i8", "int32": "i4", "uint8": "u1", "bool": "?"}


class EncoderGraph(NamedTuple):
    """The graph of an encoder, and how its output becomes one row."""

    path: str | os.PathLike[str]
    output: str | None = None  # its name; if None, the first that has the model's number of features
    pooling: str | None = None  # of tokens, [n, t, d]: "mean", by the attention mask, or "cls", the first; None is mean
    normalize: bool = False  # whether rows get unit length, as with many encoders of texts
    sample: Mapping[str, ArrayLike] | None = None  # inputs to try it on; made up if None


def embedded(how: EncoderGraph, n_features: int) -> tuple[Graph, Symbol]:
    """A graph that begins with an encoder, and the rows, [n, d], from its output, [n, d] or [n, t, d]."""
    pooling = how.pooling or POOLINGS[0]
    encoder = onnx_graph.load_encoder(how.path)
    graph = Graph(encoder)
    value = _output(encoder, how.output, n_features)
    rows: Symbol = graph.theirs(value).astype(np.float32)
    if len(onnx_graph.dimensions(value) or ()) == 3:
        check_pooling(pooling)
        rows = _pooled(graph, encoder, rows, pooling)
    if how.normalize:
        rows = rows / np.maximum(np.sqrt((rows * rows).sum()), LEAST_LENGTH)
    return graph, rows


def as_trained(how: EncoderGraph, trained: Descriptor | None) -> EncoderGraph:
    """The encoder as the model's rows were made, if the model knows that; another one is refused.

    Output, pooling and length are those of the descriptor. What else was said of them is refused.
    """
    if not isinstance(trained, TextEncoder | PictureEncoder):
        return how
    if (own := file_digest(Path(how.path))) != trained.model:
        raise ValueError(
            f"behind={os.fspath(how.path)!r} has SHA-256 {own}, and the model was trained on {trained}, a file with "
            f"SHA-256 {trained.model}; give that one."
        )
    for name, given, needed in (
        ("output", how.output, trained.output),
        ("pooling", how.pooling, trained.pooling),
        ("normalize", how.normalize or None, trained.normalised),
    ):
        if given not in (None, needed):
            raise ValueError(f"{name}={given!r}, and the model was trained with {needed!r}; leave it out.")
    return how._replace(output=trained.output, pooling=trained.pooling, normalize=trained.normalised)


def check_pooling(pooling: str | None) -> None:
    """Refuse what is no way to make a row of tokens in a graph."""
    if pooling not in (None, *POOLINGS):
        raise ValueError(
            f"pooling={pooling!r}; give one of {', '.join(POOLINGS)}. A model that was trained with another one can "
            "only be exported without its encoder."
        )


def read_sample(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Inputs of an encoder by name, from an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"sample={os.fspath(path)!r} is no .npz file of arrays: {error}") from error


def sample(how: EncoderGraph, run: Any) -> dict[str, NDArray[Any]]:
    """Inputs to try a graph on: those that were given, or else made up as encoders of pictures or texts take them."""
    if how.sample is not None:
        return {name: np.asarray(values) for name, values in how.sample.items()}
    generator = np.random.default_rng(0)
    return {one.name: _made_up(one.name, one.type, one.shape, generator) for one in run.get_inputs()}


def _output(encoder: Any, name: str | None, n_features: int) -> Any:
    """The output of that name, or the first that can be rows of so many features."""
    told = {one.name: onnx_graph.dimensions(one) for one in encoder.graph.output}

    def fits(value: Any, sides: tuple[int | None, ...]) -> bool:
        shape = told[value.name]
        return shape is not None and len(shape) in (2, 3) and shape[-1] in sides and onnx_graph.is_real(value)

    named = [one for one in encoder.graph.output if name in (None, one.name)]
    # One that says how wide it is comes before one that does not.
    for sides in ((n_features,), (None,)):
        if found := [one for one in named if fits(one, sides)]:
            return found[0]
    shown = ", ".join(f"{name!r} {'of unknown shape' if shape is None else shape}" for name, shape in told.items())
    what = f"{n_features} features, [n, {n_features}] or [n, tokens, {n_features}]"
    raise ValueError(f"the encoder has no output{f' {name!r}' if name else ''} of the model's {what}; it has {shown}.")


def _pooled(graph: Graph, encoder: Any, tokens: Symbol, pooling: str) -> Symbol:
    """One row from its tokens, [n, t, d]."""
    if pooling == "cls":
        return graph.node("Gather", tokens, graph.constant(np.array(0)), axis=1)
    mask: Any = next((one for one in encoder.graph.input if "attention_mask" in one.name), None)
    if mask is None:
        length = graph.node("Gather", graph.node("Shape", tokens, dtype=np.int64), graph.constant(np.array(1)))
        return tokens.sum(keepdims=False) / length.astype(np.float32)
    counts: Symbol = graph.theirs(mask).astype(np.float32)
    weights = graph.node("Unsqueeze", counts, graph.constant(np.array([2])))
    return (tokens * weights).sum(keepdims=False) / np.maximum(counts.sum(), LEAST_LENGTH)


def _made_up(name: str, kind: str, sides: list[Any], generator: np.random.Generator) -> NDArray[Any]:
    """One input of such a name, type and shape, whose open sides are texts, None or −1."""
    dtype = _NUMBERS.get(kind.removeprefix("tensor(").rstrip(")"))
    if dtype is None:
        raise ValueError(f"the encoder's input {name!r} is a {kind}; give a sample of its inputs.")
    is_real = dtype[0] == "f"
    others = (CHANNELS, PIXELS, PIXELS) if is_real and len(sides) == 4 else (TOKENS,) * (len(sides) - 1)
    is_open = [not isinstance(side, int) or side < 1 for side in sides]
    shape = [size if free else side for side, free, size in zip(sides, is_open, (ROWS, *others), strict=False)]
    made: NDArray[Any]
    if is_real:
        made = generator.normal(size=shape)
    elif "mask" in name:
        made = np.arange(shape[-1]) < generator.integers(1, shape[-1] + 1, (*shape[:-1], 1))
    elif "type" in name:
        made = np.zeros(shape)
    elif "position" in name:
        made = np.broadcast_to(np.arange(shape[-1]), shape)
    else:
        made = generator.integers(WORDS, size=shape)
    return made.astype(dtype)
