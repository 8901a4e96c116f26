"""Checks of what users hand to a collection; an error names the argument, what was given and what to give."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.codes import packing
from gphash.collection import conditions
from gphash.collection.records import Query, code_of
from gphash.collection.rows import Layout
from gphash.data import frames
from gphash.functions.model import Model
from gphash.index.rankings import NO_READER, RANKINGS

NO_VECTORS = "made without vectors; make it with vectors='float16' (gphash index --vectors float16)"


def whole(name: str, value: Any, least: int | None = None) -> int:
    """A whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or (least is not None and value < least):
        raise ValueError(f"{name}={value!r}; give a whole number{'' if least is None else f' of at least {least}'}.")
    return int(value)


def check_promise(min_probability: Any, precision: Any, recall: Any, ranking: str, model: Model) -> None:
    """Refuse what is no probability, or what the model or the ranking cannot promise."""
    for name, given in (("min_probability", min_probability), ("precision", precision), ("recall", recall)):
        if given is None:
            continue
        number = isinstance(given, int | float | np.floating) and not isinstance(given, bool)
        if name == "min_probability" and not (number and 0 <= given <= 1):
            raise ValueError(f"{name}={given!r}; give a number from 0 to 1.")
        if name != "min_probability" and not (number and 0 < given < 1):
            raise ValueError(f"{name}={given!r}; give a number between 0 and 1, such as 0.9.")
        if model.reader_ is None:
            raise ValueError(f"{name}={given!r}, but {NO_READER}; leave it out.")
        if name != "min_probability" and model.trust_ is None:
            why = "the model was not fitted to labels or tags by GPHasher(codes='posterior')"
            raise ValueError(f"{name}={given!r}, but {why}, which alone keeps promises; give min_probability.")
        if name != "min_probability" and ranking != "similarity":
            raise ValueError(f"{name}={given!r}, but ranking={ranking!r}; give ranking='similarity'.")
    if precision is not None and recall is not None:
        raise ValueError(f"precision={precision!r} and recall={recall!r}; give one of them.")


def check_rerank(rerank: Any, k: int, promised: bool, layout: Layout) -> int | None:
    """How many candidates are ordered by their vectors; None if they are not."""
    if rerank is None:
        return None
    if whole("rerank", rerank, 1) < k:
        raise ValueError(f"rerank={rerank}, but k={k}; give at least as many candidates as are to be found.")
    if layout.vectors is None:
        raise ValueError(f"rerank={rerank}, but the collection was {NO_VECTORS}.")
    if promised:
        raise ValueError(f"rerank={rerank}, but precision and recall need the order of P(similar); leave one out.")
    return int(rerank)


def check_cosine(min_cosine: Any, layout: Layout) -> None:
    """Refuse what is no cosine, or what a collection without vectors cannot tell."""
    if min_cosine is None:
        return
    if (
        isinstance(min_cosine, bool)
        or not isinstance(min_cosine, int | float | np.floating)
        or not -1 <= min_cosine <= 1
    ):
        raise ValueError(f"min_cosine={min_cosine!r}; give a number from -1 to 1.")
    if layout.vectors is None:
        raise ValueError(f"min_cosine={min_cosine!r}, but the collection was {NO_VECTORS}.")


def condition(where: str | None, params: Sequence[Any], layout: Layout) -> conditions.Condition | None:
    """A condition on the columns of items, if there is one."""
    if where is not None:
        return conditions.read(where, params, layout.names, layout.kinds)
    if params:
        raise ValueError(f"params={params!r}, but where=None; give the condition that they belong to.")
    return None


def asked(query: Any) -> tuple[Any, bool]:
    """A list of queries, or rows, and whether it was one query or row that was given."""
    if isinstance(query, Query):
        return [query], True
    if isinstance(query, list | tuple) and query and isinstance(query[0], Query):
        return list(query), False
    if frames.is_frame(query):
        return frames.held(query, "query")[:], False
    return query, np.ndim(query) == 1


def queries(given: Any, ranking: str, collection: Any) -> list[Query]:
    """Queries, or rows [n, d] or [d] as queries."""
    model: Model = collection.model
    needs = RANKINGS.find(ranking, "ranking").of(model).needs
    if isinstance(given, list) and given and isinstance(given[0], Query):
        for each in given:
            if each.model not in (None, model.fingerprint):
                raise ValueError(
                    "query was made with another model than the collection has now; make it again "
                    "(docs/questions.md#another-model)."
                )
            check_ranking(ranking, each, model, collection.hidden_folder)
        return given
    rows = model.check_rows(given if np.ndim(given) == 2 else np.asarray(given)[None], "query")
    if needs == "probabilities" and not model.has_probabilities:
        raise ValueError(f"ranking={ranking!r}, but {model.method} has no probabilities; give 'hamming'.")
    return looked(rows, model)


def looked(rows: NDArray[Any], model: Model) -> list[Query]:
    """Queries of rows [n, d], with all that the model knows of them."""
    seen = model.look(rows)
    found = [Query(code, None, features=row) for code, row in zip(seen.packed, rows, strict=True)]
    for name, values in (("probabilities", seen.chances), ("classes", seen.classes), ("familiarity", seen.familiarity)):
        if values is not None:
            found = [query._replace(**{name: value}) for query, value in zip(found, values, strict=True)]
    return found


def ranking_of(given: str | None, model: Model) -> str:
    """The ranking that was given; if none was, the best that the model allows."""
    if given is not None:
        return given
    return "hamming" if model.reader_ is None else "similarity"


def check_ranking(ranking: str, query: Query, model: Model, hidden_folder: Path | None) -> None:
    """Refuse a ranking that is unknown, or that the query does not allow."""
    if RANKINGS.find(ranking, "ranking").needs == "probabilities" and query.probabilities is None:
        why = "its picture or text cannot be described again" if model.has_probabilities else f"{model.method} has none"
        if model.has_probabilities and hidden_folder is not None:
            why += f": give pictures={str(hidden_folder)!r}"
        raise ValueError(f"ranking={ranking!r}, but the query has no probabilities ({why}); give 'hamming'.")


def check_label(label: str, classes: tuple[str, ...]) -> None:
    """Refuse a label that no item can have."""
    if label not in classes:
        names = ", ".join(map(repr, classes[:10])) + (", …" if len(classes) > 10 else "")
        advice = f"give one of {names}" if classes else "its items have none"
        raise ValueError(f"label={label!r} is no label of the collection; {advice}.")


def row(features: ArrayLike | None, model: Model) -> NDArray[Any]:
    """One row that a model takes, as rows [1, d]."""
    found, width = np.asarray(features), model.n_features
    if found.shape not in ((width,), (1, width)):
        raise ValueError(f"features has shape {found.shape}; give one row of {width} numbers, [{width}].")
    return model.check_rows(found.reshape(1, width), "features")


def code(given: ArrayLike | str, n_bits: int) -> NDArray[np.uint8]:
    """A packed code, uint8 [bytes]."""
    if isinstance(given, str):
        if len(given) != n_bits or set(given) - {"0", "1"}:
            raise ValueError(f"code={given[:80]!r}; give {n_bits} zeros and ones.")
        return code_of(given)
    checked = packing.check_packed(np.atleast_2d(np.asarray(given)), n_bits, "code")
    if len(checked) != 1:
        raise ValueError(f"code has {len(checked)} rows; give one code.")
    return checked.reshape(-1)
