"""What a file says by its own bytes, read slowly and without the package."""

import hashlib
import itertools
import struct

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
    meta, arrays = parts.header["meta"], {name: array.astype(np.float64) for name, array in parts.arrays.items()}
    if "features" in arrays:
        return _trees(parts.arrays, X), np.full((1, 1), 1e-9)
    scaled = X.astype(np.float64) - arrays["scaling_mean"]
    if meta["unit_length"]:
        length = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
        scaled = scaled / np.where(length == 0, 1, length)
    if "directions" in arrays:
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
    kernel, Z = meta["kernel"], arrays["Z"]
    K = reference.squared_exponential(scaled, Z, kernel["length_scale"], kernel["signal_scale"])
    reach = max((Z**2).sum(axis=1).max(), (scaled**2).sum(axis=1).max()) / kernel["length_scale"] ** 2
    sums = kernel["signal_scale"] ** 2 * np.abs(weights).sum(axis=0)
    return K @ weights + offset, 1e-6 * (max(1.0, reach) * sums + np.abs(offset))


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


def records(content):
    """Kind and payload of every record of a journal in its chain."""
    chain, place, found = hashlib.sha256(content[:76]).digest(), 4096, []
    while place + 44 <= len(content):
        kind, length = struct.unpack_from("<IQ", content, place)
        end = place + 12 + length
        chain = hashlib.sha256(chain + content[place:end]).digest()
        if content[end : end + 32] != chain:
            break
        found.append((kind, content[place + 12 : end]))
        place = end + 32
    return found


def replayed(items, content, n_bits, index):
    """What is left of an index after a journal, change by change."""
    items, width = dict(items), -(-n_bits // 8)
    length = int.from_bytes(index[8:16], "little")
    demand(content[:12] == b"\x89GPHJRN\n" + struct.pack("<I", 1), "another format of journal")
    demand(content[12:44].hex().encode() in index[: 16 + length], "a journal of another index")
    for kind, payload in records(content):
        count = int.from_bytes(payload[:8], "little")
        demand(kind in (1, 2) and len(payload) == 8 + count * (8 + width * (kind == 1)), "a record that is none")
        ids = np.frombuffer(payload, "<i8", count, 8).tolist()
        for number, id in enumerate(ids):
            demand((id in items) == (kind == 2), "an item that was added twice, or removed without being there")
            if kind == 2:
                del items[id]
                continue
            place = 8 + 8 * count + number * width
            bits = np.unpackbits(np.frombuffer(payload[place : place + width], np.uint8))
            demand(not bits[n_bits:].any(), "a code with spare bits")
            items[id] = bits[:n_bits].tolist()
    return items


def labels(parts):
    """Names of the labels or tags of every item by its id."""
    meta, arrays = parts.header["meta"], parts.arrays
    ids, classes = arrays["ids"].tolist(), meta["classes"]
    demand(len(set(ids)) == len(ids), "repeated ids")
    demand(len(set(classes)) == len(classes), "classes of the same name")
    if "labels" in arrays:
        return {id: () if n == -1 else (classes[n],) for id, n in zip(ids, arrays["labels"].tolist(), strict=True)}
    if "tags" in arrays:
        rows = zip(ids, arrays["tags"].tolist(), strict=True)
        return {id: tuple(name for name, on in zip(classes, row, strict=True) if on) for id, row in rows}
    return {}


def pixels(parts, id):
    """The pixels of an item; None if it has none."""
    ids = parts.arrays["ids"].tolist()
    return parts.arrays["pixels"][ids.index(id)] if "pixels" in parts.arrays and id in ids else None


def same_but_for_sweeps(one, other):
    """Whether two checkpoints have all in common that training goes on with."""
    kept = [{name: value for name, value in parts.header["meta"].items() if name != "sweeps"} for parts in (one, other)]
    same = kept[0] == kept[1] and one.arrays.keys() == other.arrays.keys()
    return same and all(
        array.dtype == other.arrays[name].dtype and np.array_equal(array, other.arrays[name])
        for name, array in one.arrays.items()
    )
