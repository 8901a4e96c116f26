"""Pipelines of scikit-learn that end in a hasher, as one hasher: what prepares rows becomes part of the hash function.

    pipeline = make_pipeline(StandardScaler(), PCA(64), GPHasher(n_bits=32)).fit(X, y)
    gphash.save(pipeline, "model.gph")
    hasher = gphash.load("model.gph")        # takes the rows that the pipeline takes

No step is pickled: those in `AFFINE` are affine maps, and are composed in float64.
"""

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection
from sklearn.utils.validation import check_is_fitted

from gphash.arrays import Floats, is_sparse
from gphash.data.descriptors.descriptor import Descriptor
from gphash.functions.prepared import NORMS, PreparedFunction, Step
from gphash.hashers.contract import Hasher


def save(
    model: Hasher | Pipeline,
    path: str | os.PathLike[str],
    origin: dict[str, Any] | None = None,
    descriptor: Descriptor | None = None,
) -> str:
    """Write a fitted hasher, or a pipeline that ends in one, to one file and return its fingerprint; see `Hasher.save`.

    `load` gives a hasher that takes the rows that the pipeline takes. Steps of a pipeline are folded into it; those
    that cannot be are refused, see `folded`.
    """
    return folded(model).save(path, origin, descriptor)


def folded(model: Hasher | Pipeline) -> Hasher:
    """A hasher that does all that a pipeline does; a hasher stays what it is.

    The steps before the hasher may be StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, IncrementalPCA,
    TruncatedSVD, random projections, TfidfTransformer, Normalizer, and pipelines of these. Codes are the pipeline's
    but for bits whose sign rounding decides: the pipeline rounds between two steps if rows are float32.
    """
    if isinstance(model, Hasher):
        return model
    steps = list(_flat(model)) if isinstance(model, Pipeline) else []
    if not steps or not isinstance(steps[-1][1], Hasher):
        given = f"a pipeline that ends in {type(steps[-1][1]).__name__}" if steps else type(model).__name__
        raise ValueError(f"model is {given}; give a fitted hasher, or a pipeline that ends in one.")
    steps = [(name, step) for name, step in steps if not isinstance(step, str)]
    for _, step in steps:
        check_is_fitted(step)
    hasher: Hasher = steps[-1][1]
    before = steps[:-1]
    found: list[Step] = []
    for name, step in before:
        found = _composed(found, _step(name, step))
    if not found:
        return hasher
    twin: Hasher = copy.copy(hasher)
    twin.__dict__.pop("feature_names_in_", None)
    if hasattr(before[0][1], "feature_names_in_"):
        twin.feature_names_in_ = before[0][1].feature_names_in_
    twin.hash_function_ = PreparedFunction(found, hasher.hash_function_)
    twin.n_features_in_ = twin.hash_function_.n_features
    return twin


def _flat(pipeline: Pipeline, place: str = "") -> Iterator[tuple[str, Any]]:
    for name, step in pipeline.steps:
        if isinstance(step, Pipeline):
            yield from _flat(step, f"{place}{name}__")
        else:
            yield place + name, "passthrough" if step is None else step


def _scaler(step: StandardScaler) -> Step:
    width = int(step.n_features_in_)
    factor = 1 / step.scale_ if step.with_std else np.ones(width)
    return Step(factor, -step.mean_ * factor if step.with_mean else np.zeros(width))


def _robust(step: RobustScaler) -> Step:
    width = int(step.n_features_in_)
    factor = 1 / step.scale_ if step.with_scaling else np.ones(width)
    return Step(factor, -step.center_ * factor if step.with_centering else np.zeros(width))


def _components(step: Any) -> Step:
    """Principal components, or any other linear map to components."""
    parts = step.components_
    weights = np.asarray((parts.toarray() if is_sparse(parts) else parts).T, np.float64)
    if getattr(step, "whiten", False):
        spread = np.sqrt(step.explained_variance_)
        weights = weights / np.maximum(spread, np.finfo(spread.dtype).eps)
    mean = getattr(step, "mean_", None)
    return Step(weights, np.zeros(weights.shape[1]) if mean is None else -np.asarray(mean, np.float64) @ weights)


def _tfidf(step: TfidfTransformer) -> Step:
    width = int(step.n_features_in_)
    return Step(step.idf_ if step.use_idf else np.ones(width), np.zeros(width), step.norm or "none")


AFFINE: dict[type, Callable[[Any], Step]] = {
    StandardScaler: _scaler,
    MinMaxScaler: lambda step: Step(step.scale_, step.min_),
    MaxAbsScaler: lambda step: Step(1 / step.scale_, np.zeros(len(step.scale_))),
    RobustScaler: _robust,
    PCA: _components,
    IncrementalPCA: _components,
    TruncatedSVD: _components,
    GaussianRandomProjection: _components,
    SparseRandomProjection: _components,
    TfidfTransformer: _tfidf,
    Normalizer: lambda step: Step(np.ones(step.n_features_in_), np.zeros(step.n_features_in_), step.norm),
}
"""Steps that can be folded, by their very class: one that is derived from it may do something else."""


def _step(name: str, step: Any) -> Step:
    """What a step does."""
    own, why = f"the step {name!r} of the pipeline is {type(step).__name__}", ""
    if type(step) not in AFFINE:
        why = f"; those that can be kept are {', '.join(kind.__name__ for kind in AFFINE)}"
    elif getattr(step, "clip", False):
        why = " with clip=True"
    elif getattr(step, "sublinear_tf", False):
        why = " with sublinear_tf=True"
    elif getattr(step, "norm", None) not in (None, *NORMS):
        why = f" with norm={step.norm!r}"
    if why:
        raise ValueError(
            f"{own}, which no model file can hold{why}. Apply it yourself before rows are given to fit and encode, or "
            "hand it in as an encoder: Collection.create(…, encoder=…)."
        )
    found = AFFINE[type(step)](step)
    return Step(np.asarray(found.weights, np.float64), np.asarray(found.offset, np.float64), found.norm)


def _composed(steps: list[Step], added: Step) -> list[Step]:
    """One more step, as part of the last one if that does not scale rows."""
    if not steps or (last := steps[-1]).norm != "none":
        return [*steps, added]
    return [*steps[:-1], Step(_product(last.weights, added.weights), _moved(last.offset, added), added.norm)]


def _product(one: Floats, other: Floats) -> Floats:
    """Weights of two maps as one; a vector stands for its diagonal matrix."""
    if one.ndim == 2 and other.ndim == 2:
        return np.ascontiguousarray(one @ other)
    return np.ascontiguousarray(one[:, None] * other if other.ndim == 2 else one * other)


def _moved(offset: Floats, step: Step) -> Floats:
    return np.asarray((offset @ step.weights if step.weights.ndim == 2 else offset * step.weights) + step.offset)
