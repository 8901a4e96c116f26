"""ONNX graphs, written in numpy's notation: operators and universal functions of a `Tensor` become nodes of its graph.

    graph = Graph()
    rows = graph.input("rows", np.float32, ("n", 64))
    model = graph.model({"doubled": np.exp(rows @ W) * 2}, {})

So what is a formula of arrays, as a kernel's, is one of graphs too. Only operators are used whose form has not changed
between opset 13 and the newest: a graph can follow any encoder of these. This is the one module that imports `onnx`.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gphash.version import __version__

OLDEST, OPSET, IR_VERSION = 13, 17, 8  # not the newest, so that older runtimes know them; browsers do, too
MOST_BYTES = (1 << 31) - (1 << 20)  # of a file, as protobuf has it
PREFIX = "gphash/"
MISSING = "an ONNX graph needs onnx and ONNX Runtime: pip install 'gphash[onnx]'"
TREES = ("ai.onnx.ml", 3)  # the domain of decision trees, and its opset

Shape: TypeAlias = Sequence[int | str]

OPERATORS: dict[Any, str] = {
    np.add: "Add",
    np.subtract: "Sub",
    np.multiply: "Mul",
    np.divide: "Div",
    np.matmul: "MatMul",
    np.power: "Pow",
    np.maximum: "Max",
    np.minimum: "Min",
    np.negative: "Neg",
    np.absolute: "Abs",
    np.sqrt: "Sqrt",
    np.exp: "Exp",
    np.log: "Log",
    np.sin: "Sin",
    np.cos: "Cos",
    np.tanh: "Tanh",
    np.equal: "Equal",
    np.greater: "Greater",
    np.greater_equal: "GreaterOrEqual",
}
"""Universal functions of numpy, and the operators that do the same."""
_COMPARISONS = {"Equal", "Greater", "GreaterOrEqual"}


class Tensor(np.lib.mixins.NDArrayOperatorsMixin):
    """An intermediate result of a graph."""

    def __init__(self, graph: "Graph", name: str, dtype: DTypeLike):
        self.graph, self.name, self.dtype = graph, name, np.dtype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **others: Any) -> Any:
        if method != "__call__" or others:
            return NotImplemented
        if ufunc is np.square:
            return self * self
        if ufunc not in OPERATORS:
            raise ValueError(f"numpy's {ufunc.__name__} has no operator in ONNX graphs; use {_known()}.")
        return self.graph.node(
            OPERATORS[ufunc], *(one if isinstance(one, Tensor) else self.like(one) for one in inputs)
        )

    def like(self, values: Any) -> "Tensor":
        """Numbers as a constant of the same type."""
        return self.graph.constant(np.asarray(values, self.dtype))

    def astype(self, dtype: DTypeLike) -> "Tensor":
        """The same numbers in another type."""
        return self if self.dtype == np.dtype(dtype) else self.graph.node("Cast", self, dtype=dtype, to=_kind(dtype))

    def sum(self, keepdims: bool = True) -> "Tensor":
        """Sums over the second side, [n, 1]."""
        side = self.graph.constant(np.array([1]))
        return self.graph.node("ReduceSum", self, side, dtype=self.dtype, keepdims=int(keepdims))


Symbol: TypeAlias = Any
"""A `Tensor` in a formula: numpy's types do not know that its functions take one."""


class Graph:
    """Nodes and constants in the order in which they were asked for, behind those of an encoder if there is one.

    Their names begin with "gphash/", so that they cannot be the encoder's.
    """

    def __init__(self, encoder: Any = None):
        self._encoder = encoder  # a ModelProto
        self._inputs: list[Any] = []
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._bytes = 0

    def input(self, name: str, dtype: DTypeLike, shape: Shape) -> Tensor:
        """What the graph is given."""
        self._inputs.append(_onnx().helper.make_tensor_value_info(name, _kind(dtype), list(shape)))
        return Tensor(self, name, dtype)

    def theirs(self, value: Any) -> Tensor:
        """An input or an output of the encoder, a `ValueInfoProto`."""
        dtype = _onnx().helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        return Tensor(self, value.name, dtype)

    def constant(self, values: NDArray[Any]) -> Tensor:
        """Numbers that the file holds."""
        self._bytes += values.nbytes
        if self._bytes > MOST_BYTES:
            raise ValueError(f"the model has over {MOST_BYTES / 1e9:.1f} GB of numbers, too many for an ONNX file.")
        name = f"{PREFIX}constant_{len(self._constants)}"
        self._constants.append(_onnx().numpy_helper.from_array(np.asarray(values, order="C"), name))
        return Tensor(self, name, values.dtype)

    def node(self, operator: str, *inputs: Tensor, dtype: DTypeLike | None = None, **attributes: Any) -> Tensor:
        """What an operator makes of tensors; of the first one's type unless another is said."""
        name = f"{PREFIX}{operator}_{len(self._nodes)}"
        made = _onnx().helper.make_node(operator, [one.name for one in inputs], [name], name=name, **attributes)
        self._nodes.append(made)
        return Tensor(self, name, dtype or (np.bool_ if operator in _COMPARISONS else inputs[0].dtype))

    def model(self, outputs: Mapping[str, tuple[Tensor, Shape]], metadata: Mapping[str, str]) -> Any:
        """The graph as a `ModelProto` with outputs of such names and shapes, checked."""
        onnx = _onnx()
        make, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
        last = [make("Identity", [one.name], [name], name=PREFIX + name) for name, (one, _) in outputs.items()]
        shown = [info(name, _kind(one.dtype), list(shape)) for name, (one, shape) in outputs.items()]
        nodes = [*self._nodes, *last]
        if self._encoder is None:
            drawn = onnx.helper.make_graph(nodes, "gphash", self._inputs, shown, self._constants)
            model = onnx.helper.make_model(drawn, opset_imports=[onnx.helper.make_opsetid("", OPSET)])
            model.ir_version = IR_VERSION
        else:
            model = onnx.ModelProto()
            model.CopyFrom(self._encoder)
            _append(model, nodes, self._constants, shown)
        used = {one.domain for one in model.opset_import}
        if any(node.domain == TREES[0] for node in self._nodes) and TREES[0] not in used:
            model.opset_import.append(onnx.helper.make_opsetid(*TREES))
        return _signed(model, metadata)


def load_encoder(path: str | os.PathLike[str]) -> Any:
    """An encoder's graph, with the shapes of its outputs as far as they can be told; a ValueError if it is no use."""
    onnx, shown = _onnx(), repr(os.fspath(path))
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
    except OSError:
        raise
    except Exception as error:  # protobuf's, and the checker's
        raise ValueError(f"{shown} is no ONNX graph that can be used: {error}") from error
    opset = max((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=0)
    if opset < OLDEST:
        raise ValueError(f"{shown} has opset {opset}; give an encoder of opset {OLDEST} or newer.")
    if model.ByteSize() > MOST_BYTES:
        raise ValueError(f"{shown} has over {MOST_BYTES / 1e9:.1f} GB; it must fit into one ONNX file.")
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:  # of operators that onnx does not know; shapes stay as they are
        return model


def describe(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Types and shapes of the inputs and outputs of a graph as texts, by name, and its metadata."""
    onnx = _onnx()
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError:
        raise
    except Exception as error:  # protobuf's
        raise ValueError(f"{os.fspath(path)!r} is damaged: it cannot be read as an ONNX graph") from error

    def told(values: Any) -> dict[str, str]:
        kinds = onnx.TensorProto.DataType
        found = {}
        for one in values:
            tensor = one.type.tensor_type
            sides = [str(side.dim_value) if side.HasField("dim_value") else side.dim_param for side in tensor.shape.dim]
            found[one.name] = f"{kinds.Name(tensor.elem_type).lower()} [{', '.join(sides)}]"
        return found

    return told(model.graph.input), told(model.graph.output), {one.key: one.value for one in model.metadata_props}


def dimensions(value: Any) -> list[int | None] | None:
    """Shape of an input or output; None for a side, or for all of them, that the graph does not tell."""
    if not value.type.tensor_type.HasField("shape"):
        return None
    sides = value.type.tensor_type.shape.dim
    return [side.dim_value if side.HasField("dim_value") else None for side in sides]


def is_real(value: Any) -> bool:
    """Whether an input or output is of floating-point numbers."""
    proto = _onnx().TensorProto
    return value.type.tensor_type.elem_type in (proto.FLOAT, proto.DOUBLE, proto.FLOAT16)


def _append(model: Any, nodes: list[Any], constants: list[Any], outputs: list[Any]) -> None:
    """Put nodes behind an encoder's, and outputs in place of its own."""
    graph = model.graph
    taken = {name for node in graph.node for name in node.output} | {one.name for one in graph.input}
    for one in outputs:
        if one.name in taken:
            raise ValueError(f"the encoder has a tensor {one.name!r}, as an output of gphash is called; rename it.")
    del graph.output[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)
    graph.output.extend(outputs)
    model.ir_version = max(model.ir_version, IR_VERSION)
    if model.ByteSize() > MOST_BYTES:
        raise ValueError(f"encoder and model have over {MOST_BYTES / 1e9:.1f} GB together, too many for an ONNX file.")


def _signed(model: Any, metadata: Mapping[str, str]) -> Any:
    """The same model, checked, with who made it and what is said about it."""
    onnx = _onnx()
    model.producer_name, model.producer_version = "gphash", __version__
    onnx.helper.set_model_props(model, {one.key: one.value for one in model.metadata_props} | dict(metadata))
    onnx.checker.check_model(model)
    return model


def is_ours(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a graph of gphash does: with the version of its format, and its maker."""
    with open(path, "rb") as file:
        start = file.read(10)
    return start[:1] == b"\x08" and start[2:] == b"\x12\x06gphash"


def _known() -> str:
    return ", ".join(ufunc.__name__ for ufunc in OPERATORS)


def _kind(dtype: DTypeLike) -> int:
    return int(_onnx().helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _onnx() -> Any:
    try:
        import onnx
        import onnx.shape_inference
    except ImportError as error:
        raise ImportError(MISSING) from error
    return onnx
