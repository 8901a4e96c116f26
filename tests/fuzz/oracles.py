"""What a file says by its own bytes, read slowly and without the package."""

import itertools

import numpy as np

from tests import reference


class WrongError(AssertionError):
    """A file was taken that should have been refused, or its answer is wrong."""


def demand(holds, otherwise):
    """Raise a WrongError if something does not hold."""
    if not holds:
        raise WrongError(otherwise)


def margins(parts, X):
    """Margins of rows by a model's own numbers, [n, m], and how near to zero rounding may decide their sign."""
    meta = parts.header["meta"]
    if meta["form"] == "joined":
        found = [margins(_part(parts, name), X) for name in ("supervised", "free")]
        tolerances = [np.broadcast_to(tolerance, margin.shape) for margin, tolerance in found]
        return np.hstack([margin for margin, _ in found]), np.hstack(tolerances)
    if meta["form"] == "prepared":
        for number, norm in enumerate(meta["norms"]):
            weights, offset = (parts.arrays[f"{number}.{name}"] for name in ("weights", "offset"))
            X = X.astype(np.float64) @ (np.diag(weights) if weights.ndim == 1 else weights) + offset
            length = {"none": np.ones(len(X)), "l1": np.abs(X).sum(axis=1), "l2": np.sqrt((X**2).sum(axis=1))}[norm]
            X = X / np.where(length == 0, 1, length)[:, None]
        return margins(_part(parts, "behind"), X)
    arrays = {name: array.astype(np.float64) for name, array in parts.arrays.items()}
    if "features" in arrays:
        return _trees(parts.arrays, X), np.full((1, 1), 1e-9)
    scaled = X.astype(np.float64) - arrays["scaling_mean"]
    if "scaling_metric" in arrays:
        scaled = scaled @ arrays["scaling_metric"]
    if meta["unit_length"]:
        length = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
        scaled = scaled / np.where(length == 0, 1, length)
    if "dimension" in arrays:
        dimension = parts.arrays["dimension"]
        steep = np.pi * arrays["frequency"] / arrays["extent"][dimension]
        phase = (scaled @ arrays["directions"] - arrays["least"])[:, dimension] * steep
        reach = np.sqrt((scaled**2).sum(axis=1, keepdims=True)) * np.sqrt((arrays["directions"] ** 2).sum())
        return np.cos(phase), 1e-9 * (1 + (reach + np.abs(arrays["least"]).max()) * steep)
    weights, offset = arrays["weights"], arrays["offset"]
    if "Z" not in arrays:
        sums = np.abs(scaled) @ np.abs(weights) + np.sqrt((scaled**2).sum(axis=1))[:, None] * np.abs(weights).sum(
            axis=0
        )
        return scaled @ weights + offset, 1e-9 * (sums + np.abs(offset))
    if "bias" in arrays:
        return _posteriors(meta, arrays, scaled)
    return _machine(meta, arrays, scaled, offset)


def _part(parts, name):
    """What a file says of one of its functions."""
    own = {key.removeprefix(f"{name}."): array for key, array in parts.arrays.items() if key.startswith(f"{name}.")}
    return parts._replace(header={"meta": parts.header["meta"][name]}, arrays=own)


def _machine(meta, arrays, scaled, offset):
    """Kernel machines."""
    kernel, Z, weights = meta["kernel"], arrays["Z"], arrays["weights"]
    K = reference.squared_exponential(scaled, Z, kernel["length_scale"], kernel["signal_scale"])
    reach = max((Z**2).sum(axis=1).max(), (scaled**2).sum(axis=1).max()) / kernel["length_scale"] ** 2
    sums = kernel["signal_scale"] ** 2 * np.abs(weights).sum(axis=0)
    return K @ weights + offset, 1e-6 * (max(1.0, reach) * sums + np.abs(offset))


def _posteriors(meta, arrays, scaled):
    """Powers of probabilities from some directions; logits that rounding may move move them by that share."""
    logits, doubt = _machine(meta, arrays, scaled, arrays["bias"])
    top = logits.max(axis=1, keepdims=True)
    total = top + np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    log_p = logits - total if meta["exclusive"] else -np.logaddexp(0, -logits)
    q, directions, offset = np.exp(meta["power"] * log_p), arrays["directions"], arrays["offset"]
    share = np.minimum(1e-6 * meta["power"] * doubt.max(), 1e300) + 1e-9
    return q @ directions + offset, share * (q @ np.abs(directions)) + 1e-9 * np.abs(offset)


def _trees(arrays, X):
    """Sums of the leaves that rows come to, node by node."""
    features, thresholds, values = (arrays[name] for name in ("features", "thresholds", "values"))
    n_bits, n_trees, n_nodes = features.shape
    total = np.zeros((len(X), n_bits))
    for j in range(n_bits):
        for t in range(n_trees):
            for i, row in enumerate(X):
                node = 0
                while node < n_nodes:
                    node = 2 * node + 1 + int(row[features[j, t, node]] >= thresholds[j, t, node])
                total[i, j] += values[j, t, node - n_nodes]
    return total


def items(parts):
    """The bits of every item of an index by its id."""
    arrays, n_bits = parts.arrays, parts.header["meta"]["n_bits"]
    codes, starts, ids = arrays["codes"], arrays["starts"].tolist(), arrays["ids"].tolist()
    demand(1 <= n_bits <= 1024, "codes of a length that no code has")
    width = 8 * codes.dtype.itemsize
    table = codes.reshape(len(codes), -1).tolist()
    texts = ["".join(f"{word:0{width}b}" for word in words) for words in table]
    demand(all(one < other for one, other in itertools.pairwise(texts)), "codes that do not ascend")
    demand(all("1" not in text[n_bits:] for text in texts), "codes with spare bits")
    demand(len(set(ids)) == len(ids), "repeated ids")
    demand(len(starts) == len(codes) + 1 and starts[0] == 0 and starts[-1] == len(ids), "starts of other codes")
    found = {}
    for text, start, stop in zip(texts, starts, starts[1:], strict=False):
        demand(start < stop, "a code that nobody has")
        for id in ids[start:stop]:
            found[id] = [int(bit) for bit in text[:n_bits]]
    return found


def same_but_for_sweeps(one, other):
    """Whether two checkpoints have all in common that training goes on with."""
    kept = [{name: value for name, value in parts.header["meta"].items() if name != "sweeps"} for parts in (one, other)]
    same = kept[0] == kept[1] and one.arrays.keys() == other.arrays.keys()
    return same and all(
        array.dtype == other.arrays[name].dtype and array.tobytes() == other.arrays[name].tobytes()
        for name, array in one.arrays.items()
    )
