"""Every form of hash functions as a graph: the formulas of `hashing`, `posteriors`, `projections`, `trees`, `joined`.

The graph is given rows in float32 and works in the precision that ours begins with: float32 for the squared
exponential kernel and what follows it, so that any runtime can do it; float64 for distances of rougher kernels and for
projections. Ours computes rows again whose margins are next to zero; the graph does not. So a form also says which
bits are in doubt: those that another order of sums may turn.

To export a form of your own, subclass `FormGraph` and register it in `GRAPHS` under the name that it has in `FORMS`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats
from gphash.functions import onnx_graph
from gphash.functions.joined import JoinedFunction
from gphash.functions.model import FORMS
from gphash.functions.onnx_graph import Symbol
from gphash.functions.prepared import PreparedFunction
from gphash.functions.projections import ROUNDING, LinearFunction, Projection, SinusoidFunction
from gphash.functions.trees import TreesFunction
from gphash.method.hashing import ClassReading, HashFunction
from gphash.method.kernels import LONG, Kernel, SquaredExponential, squared_norms
from gphash.method.posteriors import LEAST_DEVIATION, PosteriorFunction, powers
from gphash.method.scaling import Scaling
from gphash.registry import Registry

SINGLE = 1e-6  # of a float32 sum of a few products, relative to the sum of their absolute values

Outputs = dict[str, Symbol]


class FormGraph:
    """How functions of one form become graphs, and what is needed to compare these with them."""

    def outputs(self, function: Any, rows: Symbol, codes_only: bool) -> Outputs:
        """The `margins` of rows, [n, m]; `bit_probabilities` and `class_probabilities` if the function knows them."""
        raise NotImplementedError

    def doubtful(self, function: Any, X: Floats) -> NDArray[np.bool_]:
        """Which bits of rows may turn by rounding in float32, [n, m]."""
        raise NotImplementedError

    def slack(self, function: Any) -> float:
        """How far off probabilities may be by rounding."""
        return 0.0

    def probes(self, function: Any, n_rows: int, generator: np.random.Generator) -> Floats:
        """Rows like those that the function was learned from, as far as it tells, float32 [n, d]."""
        raise NotImplementedError


GRAPHS: Registry[type[FormGraph]] = Registry(
    "graph",
    {
        "kernel": "gphash.functions.onnx_forms:KernelGraph",
        "posteriors": "gphash.functions.onnx_forms:PosteriorsGraph",
        "linear": "gphash.functions.onnx_forms:LinearGraph",
        "sinusoids": "gphash.functions.onnx_forms:SinusoidsGraph",
        "trees": "gphash.functions.onnx_forms:TreesGraph",
        "joined": "gphash.functions.onnx_forms:JoinedGraph",
        "prepared": "gphash.functions.onnx_forms:PreparedGraph",
    },
)
"""Graphs of forms by the names of the forms."""


class KernelGraph(FormGraph):
    """Kernel machines."""

    def outputs(self, function: HashFunction, rows: Symbol, codes_only: bool) -> Outputs:
        """Means, P(bit = 1) = Φ(mean / √(1 + variance)), and what soft bits say of classes."""
        K = _kernel_values(function, rows)
        means = K @ function.weights + function.offset
        if codes_only or function.uncertainty is None:
            return {"margins": means}
        power, columns, n_lowering = function.uncertainty
        signs = np.where(np.arange(columns.shape[1]) < n_lowering, -1.0, 1.0)
        parts = K @ columns
        variance = np.maximum((parts * parts * signs).sum() + power * function.kernel.diagonal, 0.0)
        found = {"margins": means, "bit_probabilities": _normal_cdf(means / np.sqrt(variance + 1.0))}
        if isinstance(function.reading, ClassReading):
            weights, bias, exclusive = function.reading.soft
            logits = (found["bit_probabilities"] * 2.0 - 1.0) @ weights + bias
            found["class_probabilities"] = _powers(logits, exclusive, 1.0)
        return found

    def doubtful(self, function: HashFunction, X: Floats) -> NDArray[np.bool_]:
        """Means within what ours takes for rounding, more for rows that centring has left few digits of."""
        return np.asarray(np.abs(function.means(X)) <= _lost(function, X) * function.doubt)

    def slack(self, function: HashFunction) -> float:
        """What means may be off."""
        return float(function.doubt.max())

    def probes(self, function: HashFunction, n_rows: int, generator: np.random.Generator) -> Floats:
        """Rows between two inducing inputs, and some noise."""
        Z, scaling = function.Z.astype(np.float64), function.scaling
        one, other = (Z[generator.integers(len(Z), size=n_rows)] for _ in range(2))
        share = generator.random((n_rows, 1))
        mixed = share * one + (1 - share) * other
        mixed += 0.1 * generator.normal(size=mixed.shape) * np.sqrt(np.square(Z).mean())
        if scaling.metric is not None:
            mixed = mixed @ np.linalg.pinv(scaling.metric)
        if scaling.unit_length:  # and so of any length: as far from the mean as that is from zero
            mixed *= (np.linalg.norm(scaling.mean) or 1.0) / max(np.linalg.norm(mixed, axis=1).mean(), 1e-300)
        return np.asarray(mixed + scaling.mean, np.float32)


class PosteriorsGraph(FormGraph):
    """Bits from probabilities of classes."""

    def outputs(self, function: PosteriorFunction, rows: Symbol, codes_only: bool) -> Outputs:
        """Margins, P(bit = 1), and P(class) or P(tag)."""
        logits = KernelGraph().outputs(function.classifier, rows, True)["margins"]
        margins = _powers(logits, function.exclusive, function.power) @ function.directions + function.offset
        if codes_only or function.reading is None:
            return {"margins": margins}
        p = _powers(logits + function.shift, function.exclusive, 1.0)
        if function.exclusive:
            chance = p @ function.words
        else:
            exact = _powers((logits + function.shift).astype(np.float64), False, 1.0)  # 1 − p needs all digits
            deviation = np.sqrt((exact * (1.0 - exact)) @ np.square(function.directions))
            z = (exact @ function.directions + function.offset) / np.maximum(deviation, LEAST_DEVIATION)
            chance = _normal_cdf(z.astype(np.float32))
        return {"margins": margins, "bit_probabilities": _clipped(chance), "class_probabilities": p}

    def doubtful(self, function: PosteriorFunction, X: Floats) -> NDArray[np.bool_]:
        """Margins that may be zero for what ours takes for rounding of logits, and for float32 from there on."""
        q, reach = powers(function.classifier.means(X), function.exclusive, function.power), np.abs(function.directions)
        slack = 2 * function.power * float(function.classifier.doubt.max()) * _lost(function.classifier, X)
        near = (slack + SINGLE) * (q @ reach) + SINGLE * np.abs(function.offset)
        return np.asarray(np.abs(q @ function.directions + function.offset) <= near)

    def slack(self, function: PosteriorFunction) -> float:
        """A soft-max changes by at most twice what logits do."""
        return 2 * KernelGraph().slack(function.classifier)

    def probes(self, function: PosteriorFunction, n_rows: int, generator: np.random.Generator) -> Floats:
        """Those of the classifier."""
        return KernelGraph().probes(function.classifier, n_rows, generator)


class ProjectionGraph(FormGraph):
    """What linear functions and sinusoids have in common: ours works in float64, and so does the graph."""

    def outputs(self, function: Any, rows: Symbol, codes_only: bool) -> Outputs:
        """Margins, and what may be rounding on top: where only rounding could tell the sign, a bit is 1."""
        scaled = _scaled(function.scaling, rows.astype(np.float64))
        margins, doubt = self.project(function, scaled, np.sqrt((scaled * scaled).sum()))
        return {"margins": margins + doubt}

    def project(self, function: Any, scaled: Symbol, length: Symbol) -> tuple[Symbol, Symbol]:
        """As the function's own `_project`."""
        raise NotImplementedError

    def doubtful(self, function: Projection, X: Floats) -> NDArray[np.bool_]:
        """Margins that ours takes for zero."""
        return np.asarray(function.margins(X) == 0)

    def probes(self, function: Projection, n_rows: int, generator: np.random.Generator) -> Floats:
        """Rows in all directions around the mean, near and far."""
        drawn = generator.normal(size=(n_rows, function.n_features)) / np.sqrt(function.n_features)
        spread = self.spread(function) * 10.0 ** generator.uniform(-2, 2, (n_rows, 1))
        return np.asarray(function.scaling.mean + spread * drawn, np.float32)

    def spread(self, function: Any) -> float:
        """How far from the mean bits change."""
        return 1.0


class LinearGraph(ProjectionGraph):
    """Sides of hyperplanes."""

    def project(self, function: LinearFunction, scaled: Symbol, length: Symbol) -> tuple[Symbol, Symbol]:
        """Margins of scaled rows, and how much of them may be rounding."""
        slack = ROUNDING * np.sqrt(np.square(function.weights).sum(axis=0))
        return scaled @ function.weights + function.offset, length * slack + ROUNDING * np.abs(function.offset)

    def spread(self, function: LinearFunction) -> float:
        """The distance of the hyperplanes."""
        lengths = np.sqrt(np.square(function.weights).sum(axis=0))
        return float(np.median(np.abs(function.offset) / np.maximum(lengths, 1e-300))) or 1.0


class SinusoidsGraph(ProjectionGraph):
    """Standing waves along directions."""

    def project(self, function: SinusoidFunction, scaled: Symbol, length: Symbol) -> tuple[Symbol, Symbol]:
        """Margins of scaled rows, and how much of them may be rounding."""
        of, least = function.dimension, function.least[function.dimension]
        steepness = np.pi * function.frequency / function.extent[of]
        along = (scaled @ function.directions[:, of] - least) * steepness
        # cos as sin, as not every runtime has the cosine of float64.
        return np.sin(along + np.pi / 2), ((length + np.abs(least)) * steepness + 1.0) * ROUNDING

    def spread(self, function: SinusoidFunction) -> float:
        """The range of the components."""
        return float(np.median(function.extent))


class TreesGraph(FormGraph):
    """Sums of decision trees, as the operator TreeEnsembleRegressor."""

    def outputs(self, function: TreesFunction, rows: Symbol, codes_only: bool) -> Outputs:
        """Margins: one target a bit."""
        margins = rows.graph.node("TreeEnsembleRegressor", rows, domain=onnx_graph.TREES[0], **_ensemble(function))
        return {"margins": margins}

    def doubtful(self, function: TreesFunction, X: Floats) -> NDArray[np.bool_]:
        """Margins that may be zero for what adding the trees in float32 rounds."""
        reach = np.abs(function.trees.values).max(axis=2).sum(axis=1)
        n_trees = function.trees.values.shape[1]
        return np.asarray(np.abs(function.margins(X)) <= n_trees * np.finfo(np.float32).eps * reach)

    def probes(self, function: TreesFunction, n_rows: int, generator: np.random.Generator) -> Floats:
        """Rows made of thresholds, and of what is next to them."""
        features, thresholds = function.trees.features.ravel(), function.trees.thresholds.ravel()
        X = np.zeros((n_rows, function.n_features), np.float32)
        splits = np.isfinite(thresholds)
        for feature in np.unique(features[splits]):
            cuts = np.sort(thresholds[splits & (features == feature)])
            width = max(float(cuts[-1] - cuts[0]), 1.0)
            X[:, feature] = generator.choice(cuts, n_rows)
            moved = generator.random(n_rows) < 0.7
            X[moved, feature] += (0.1 * width * generator.normal(size=int(moved.sum()))).astype(np.float32)
        return X


class JoinedGraph(FormGraph):
    """Supervised bits, and free bits behind them."""

    def _supervised(self, function: JoinedFunction) -> FormGraph:
        return PosteriorsGraph() if isinstance(function.supervised, PosteriorFunction) else KernelGraph()

    def outputs(self, function: JoinedFunction, rows: Symbol, codes_only: bool) -> Outputs:
        """Margins and P(bit = 1) of both parts, and what the supervised one knows of classes."""
        found = self._supervised(function).outputs(function.supervised, rows, codes_only)
        # In float64, where a margin keeps its sign whichever part it is of.
        free, node = LinearGraph().outputs(function.free, rows, codes_only)["margins"], rows.graph.node
        if "bit_probabilities" in found:
            chance = _normal_cdf(free.astype(np.float32))
            found["bit_probabilities"] = node("Concat", found["bit_probabilities"].astype(np.float32), chance, axis=1)
        return found | {"margins": node("Concat", found["margins"].astype(np.float64), free, axis=1)}

    def doubtful(self, function: JoinedFunction, X: Floats) -> NDArray[np.bool_]:
        """Those of the parts."""
        supervised = self._supervised(function).doubtful(function.supervised, X)
        return np.hstack([supervised, LinearGraph().doubtful(function.free, X)])

    def slack(self, function: JoinedFunction) -> float:
        """Of the supervised part."""
        return self._supervised(function).slack(function.supervised)

    def probes(self, function: JoinedFunction, n_rows: int, generator: np.random.Generator) -> Floats:
        """Those of the supervised part."""
        return self._supervised(function).probes(function.supervised, n_rows, generator)


class PreparedGraph(FormGraph):
    """Steps that prepare rows, in float64, and a hash function behind them."""

    def _behind(self, function: PreparedFunction) -> FormGraph:
        if isinstance(function.behind, TreesFunction):
            raise ValueError("the steps before decision trees would be rounded to float32; export the trees alone.")
        return GRAPHS[FORMS.name_of(type(function.behind))]()

    def outputs(self, function: PreparedFunction, rows: Symbol, codes_only: bool) -> Outputs:
        """Those of the function behind."""
        x = rows.astype(np.float64)
        for step in function.steps:
            x = (x @ step.weights if step.weights.ndim == 2 else x * step.weights) + step.offset
            if step.norm != "none":
                length = np.sqrt((x * x).sum()) if step.norm == "l2" else np.abs(x).sum()
                x = x / rows.graph.node("Where", np.equal(length, 0.0), length.like(1.0), length)
        return self._behind(function).outputs(function.behind, x, codes_only)

    def doubtful(self, function: PreparedFunction, X: Floats) -> NDArray[np.bool_]:
        """Those of the function behind."""
        return self._behind(function).doubtful(function.behind, function.prepared(X)[:])

    def slack(self, function: PreparedFunction) -> float:
        """Of the function behind."""
        return self._behind(function).slack(function.behind)

    def probes(self, function: PreparedFunction, n_rows: int, generator: np.random.Generator) -> Floats:
        """Raw rows that become nearly those of the function behind."""
        x = self._behind(function).probes(function.behind, n_rows, generator).astype(np.float64)
        for step in reversed(function.steps):
            x = x - step.offset
            x = (
                x @ np.linalg.pinv(step.weights)
                if step.weights.ndim == 2
                else x / np.where(step.weights, step.weights, 1)
            )
        return np.asarray(x, np.float32)


def _ensemble(function: TreesFunction) -> dict[str, Any]:
    """Attributes of TreeEnsembleRegressor; trees are numbered through all bits, and leaves follow the inner nodes."""
    n_bits, n_trees, n_inner = function.trees.features.shape
    n_nodes, n_all = 2 * n_inner + 1, n_bits * n_trees

    def spread(inner: NDArray[Any], fill: Any) -> list[Any]:
        whole = np.full((n_all, n_nodes), fill, inner.dtype)
        whole[:, :n_inner] = inner.reshape(-1, n_inner)
        return list(whole.ravel().tolist())

    inner, ids = np.arange(n_inner), np.repeat(np.arange(n_all), n_nodes)
    leaf_ids = np.tile(np.arange(n_inner, n_nodes), n_all)
    ours = np.broadcast_to(inner, (n_all, n_inner))
    return {
        "n_targets": n_bits,
        "aggregate_function": "SUM",
        "post_transform": "NONE",
        "nodes_treeids": ids.tolist(),
        "nodes_nodeids": np.tile(np.arange(n_nodes), n_all).tolist(),
        "nodes_featureids": spread(function.trees.features.astype(np.int64), 0),
        "nodes_values": spread(_rounded_up(function.trees.thresholds), 0.0),
        "nodes_modes": (["BRANCH_GTE"] * n_inner + ["LEAF"] * (n_inner + 1)) * n_all,
        "nodes_truenodeids": spread(2 * ours + 2, 0),
        "nodes_falsenodeids": spread(2 * ours + 1, 0),
        "target_treeids": np.repeat(np.arange(n_all), n_inner + 1).tolist(),
        "target_nodeids": leaf_ids.tolist(),
        "target_ids": np.repeat(np.arange(n_bits), n_trees * (n_inner + 1)).tolist(),
        "target_weights": function.trees.values.astype(np.float32).ravel().tolist(),
    }


def _rounded_up(thresholds: Floats) -> Floats:
    """The least float32 numbers that are not below: float32 rows are at least these where they are at least those."""
    with np.errstate(over="ignore"):
        near = thresholds.astype(np.float32)
    return np.where(near < thresholds, np.nextafter(near, np.float32(np.inf)), near)


def _scaled(scaling: Scaling, rows: Symbol) -> Symbol:
    """Rows as `scaling.apply` makes them, in their own precision."""
    centred = rows - scaling.mean
    if scaling.metric is not None:
        centred = centred @ scaling.metric
    if not scaling.unit_length:
        return centred
    length = np.sqrt((centred * centred).sum())
    return centred / rows.graph.node("Where", np.equal(length, 0.0), length.like(1.0), length)


def _lost(function: HashFunction, X: Floats) -> Floats:
    """How many times its own rounding a scaled row has, for that of the raw row and the mean is in it, [n, 1]."""
    mean, metric = function.scaling.mean, function.scaling.metric
    centred, stretch = X.astype(np.float64) - mean, 1.0
    if metric is not None:
        centred, stretch = centred @ metric, float(np.linalg.norm(metric, 2))
    raw = stretch * (np.linalg.norm(X.astype(np.float64), axis=1) + np.linalg.norm(mean))
    longest = float(squared_norms(function.Z).max(initial=0.0)) ** 0.5
    length = np.linalg.norm(centred, axis=1) if function.scaling.unit_length else np.full(len(X), longest)
    return np.asarray(np.maximum(1.0, raw / np.maximum(length, 1e-300))[:, None])


def _kernel_values(function: HashFunction, rows: Symbol) -> Symbol:
    """k(x, Z) in float32, [n, r]."""
    kernel, landmarks, scaled = function.kernel, function.landmarks, _scaled(function.scaling, rows)
    is_squared = type(kernel).evaluate is SquaredExponential.evaluate
    if not is_squared and type(kernel).evaluate is not Kernel.evaluate:
        raise ValueError(f"the kernel {kernel} evaluates itself, which no ONNX graph can; give it a `correlation`.")
    x = scaled.astype(landmarks.dtype)
    # The products with 1 in (a, 1, ‖a‖²) are added instead.
    products = rows.graph.node("Concat", x, (x * x).sum(), axis=1) @ np.delete(landmarks, -2, axis=1).T
    found = products + landmarks[:, -2]
    if not is_squared:
        return (kernel.correlation(np.maximum(found, 0.0)) * kernel.diagonal).astype(np.float32)
    if not function.scaling.unit_length or -landmarks[0, -1] > LONG:
        found = np.minimum(found, 2 * np.log(kernel.signal_scale))
    return np.exp(found)


def _powers(logits: Symbol, exclusive: bool, power: float) -> Symbol:
    """Powers of the probabilities of classes or tags, as `posteriors.powers`."""
    node = logits.graph.node
    if power == 1:
        return node("Softmax", logits, axis=1) if exclusive else node("Sigmoid", logits)
    log_p = node("LogSoftmax", logits, axis=1) if exclusive else -node("Softplus", -logits)
    return np.exp(log_p * power)


def _normal_cdf(z: Symbol) -> Symbol:
    """Φ(z)."""
    return (z.graph.node("Erf", z * np.sqrt(0.5)) + 1.0) * 0.5


def _clipped(chance: Symbol) -> Symbol:
    return np.minimum(np.maximum(chance, 0.0), 1.0)
