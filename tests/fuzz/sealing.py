"""Containers taken apart, spoilt in many ways, and put together with checksums that fit, all without the package."""

import copy
import hashlib
import json
import math
from typing import NamedTuple

import numpy as np

MAGIC = b"\x89GPHASH\n"
STRANGE_NUMBERS = [0, 1, -1, 2, 7, 255, 1023, 1025, 2**31, 2**32, 2**63, -(2**63), 2**64, 10**6, 10**30, 10**400]
STRANGE_FLOATS = [0.0, -0.0, 0.5, -1.0, 1e-300, 1e-12, 1e12, 1e38, 1e300, -1e300, math.nan, math.inf, -math.inf]
STRANGE_TEXTS = ["", "x", "..", "../../etc", "/etc/passwd", "a\0b", "\ud800", "ß" * 100, "0" * 64, "f" * 64, "nan"]
STRANGE = [None, True, False, [], {}, [[]], [None], {"": None}, *STRANGE_NUMBERS, *STRANGE_FLOATS, *STRANGE_TEXTS]
DTYPES = ["<f4", "<f8", "<i8", "<i4", "<u4", "|u1", "|i1", "<u2", "<u8", "|b1", "<f2", "<c8", "|S4", "<U2", "<M8[s]"]


class Parts(NamedTuple):
    """What a container is made of: its header without the arrays, and the arrays by their names."""

    header: dict
    arrays: dict


def parse(content):
    """Take a container apart; whatever is wrong with it is an error of some kind."""
    length = int.from_bytes(content[8:16], "little")
    header = json.loads(content[16 : 16 + length])
    begin = _aligned(16 + length + 32)
    arrays = {}
    for entry in header.pop("arrays"):
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        raw = content[begin + entry["offset"] :][: dtype.itemsize * math.prod(shape)]
        arrays[entry["name"]] = np.frombuffer(raw, dtype).reshape(shape)
    return Parts(header, arrays)


def seal(parts, spoil=None):
    """A container with checksums and a fingerprint that fit; `spoil` changes the bytes of its header before."""
    entries, data = [], b""
    for name, array in sorted(parts.arrays.items()):
        data += bytes(-len(data) % 64)
        entries.append({"name": name, "dtype": array.dtype.str, "shape": list(array.shape), "offset": len(data)})
        data += np.ascontiguousarray(array).tobytes()
    header = {**parts.header, "arrays": entries}
    if "fingerprint" in header:
        header["fingerprint"] = _fingerprint(header, parts.arrays) or header["fingerprint"]
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    if spoil is not None:
        text = _sealed_again(spoil(text), parts.arrays)
    content = MAGIC + len(text).to_bytes(8, "little") + text
    content += hashlib.sha256(content).digest()
    return content + (bytes(-len(content) % 64) + data if entries else b"")


def _sealed_again(text, arrays):
    """A header whose bytes were changed, with the fingerprint of what it says now, if it says anything."""
    try:
        header = json.loads(text)
        mark, now = header["fingerprint"], _fingerprint(header, arrays)
        return text if now is None else text.replace(mark.encode(), now.encode())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return text


def _fingerprint(header, arrays):
    try:
        told = [[entry["name"], entry["dtype"], entry["shape"]] for entry in header["arrays"]]
        about = {"kind": header["kind"], "meta": header["meta"], "arrays": told}
        text = json.dumps(about, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    digest = hashlib.sha256(len(text).to_bytes(8, "little") + text)
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _aligned(place):
    return place + -place % 64


def spoilt(parts, rng):
    """A container with one to three faults, sealed."""
    parts = Parts(copy.deepcopy(parts.header), dict(parts.arrays))
    spoil = None
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        way = rng.random()
        if way < 0.45 and parts.arrays:
            _spoil_arrays(parts.arrays, rng)
        elif way < 0.9:
            _spoil_fields(parts.header, rng)
        else:
            spoil = lambda text: flipped(text, rng)  # noqa: E731
    return seal(parts, spoil)


def flipped(content, rng):
    """One to three bytes changed, lost or doubled."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        if not content:
            break
        place, way = int(rng.integers(len(content))), rng.random()
        if way < 0.4:
            content[place] ^= 1 << int(rng.integers(8))
        elif way < 0.7:
            content[place] = int(rng.integers(256))
        elif way < 0.85:
            del content[place : place + int(rng.integers(1, 4))]
        else:
            content[place:place] = bytes([content[place]])
    return bytes(content)


def pick(rng, values):
    """One of some values, of whatever types."""
    return values[int(rng.integers(len(values)))]


def _spoil_fields(header, rng):
    """Change, remove or add a field somewhere in a header; mostly in its meta."""
    root = header if rng.random() < 0.1 else header.get(pick(rng, ["meta", "meta", "remarks"]))
    if isinstance(root, dict | list):
        spoil_tree(root, rng)


def spoil_tree(root, rng):
    """Change, remove or add a value somewhere in nested mappings and lists."""
    holders = []

    def walk(value):
        if isinstance(value, dict | list):
            holders.append(value)
            for one in value.values() if isinstance(value, dict) else value:
                walk(one)

    walk(root)
    holder = pick(rng, holders)
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    if not keys or rng.random() < 0.05:
        if isinstance(holder, dict):
            holder[pick(rng, ["new", "method", "hash_function_", "n_bits"])] = copy.deepcopy(pick(rng, STRANGE))
        else:
            holder.append(copy.deepcopy(pick(rng, STRANGE)))
        return
    key, way = pick(rng, keys), rng.random()
    old = holder[key]
    if way < 0.15:
        del holder[key]
    elif way < 0.35 and type(old) in (int, float) and abs(old) < 1e300:
        holder[key] = pick(rng, [old + 1, old - 1, -old, old * 2, old / 2, old * 1e6, str(old), [old], old + 0.5])
    elif way < 0.45 and isinstance(old, list) and old:
        other = pick(rng, old)
        old.append(copy.deepcopy(other)) if rng.random() < 0.5 else old.remove(other)
    elif way < 0.55 and isinstance(old, str) and old:
        holder[key] = flipped(old.encode(errors="replace"), rng).decode(errors="replace")
    elif way < 0.65:
        holder[key] = copy.deepcopy(holder[pick(rng, keys)])
    else:
        holder[key] = copy.deepcopy(pick(rng, STRANGE))


def _spoil_arrays(arrays, rng):
    """Change an array's values, shape or type, or remove, add or exchange one."""
    name, way = pick(rng, sorted(arrays)), rng.random()
    array = arrays[name]
    if way < 0.08:
        del arrays[name]
    elif way < 0.12:
        arrays[pick(rng, ["new", "uncertainty", "scaling_metric", "labels", "tags", "factor", "names"])] = array
    elif way < 0.17:
        other = pick(rng, sorted(arrays))
        arrays[name], arrays[other] = arrays[other], array
    elif way < 0.3:
        arrays[name] = _of_another_type(array, rng)
    elif way < 0.5:
        arrays[name] = _of_another_shape(array, rng)
    else:
        arrays[name] = _of_other_values(array, rng)


def _of_another_type(array, rng):
    dtype = np.dtype(pick(rng, DTYPES))
    raw = np.ascontiguousarray(array).tobytes()
    if rng.random() < 0.5 and len(raw) % dtype.itemsize == 0:
        return np.frombuffer(raw, dtype)
    with np.errstate(all="ignore"):
        try:
            return array.astype(dtype)
        except (ValueError, TypeError, RuntimeError):
            return array


def _of_another_shape(array, rng):
    way = int(rng.integers(8))
    if way == 0:
        return array[:0]
    if way == 1:
        return array[..., :-1] if array.ndim else array
    if way == 2 and len(array):
        return np.concatenate([array, array[:1]])
    if way == 3:
        return array.T
    if way == 4:
        return array[None]
    if way == 5:
        return array.reshape(-1)
    if way == 6:
        return array[..., :0]
    return array[1:]


def _of_other_values(array, rng):
    array = array.copy()
    if not array.size:
        return array
    flat, way = array.reshape(-1), int(rng.integers(6))
    place, other = int(rng.integers(flat.size)), int(rng.integers(flat.size))
    with np.errstate(all="ignore"):
        if way == 0:
            raw = flat.view(np.uint8)
            raw[int(rng.integers(raw.size))] ^= np.uint8(1 << int(rng.integers(8)))
        elif way == 1:
            flat[place], flat[other] = flat[other], flat[place]
        elif way == 2:
            flat[place] = flat[other]
        elif way == 3 and array.dtype.kind in "iu":
            info = np.iinfo(array.dtype)
            flat[place] = pick(rng, [info.min, info.max, 0, 1, info.max // 2])
        elif way == 3 and array.dtype.kind == "f":
            flat[place] = pick(rng, STRANGE_FLOATS)
        elif way == 4 and array.ndim > 1:
            a, b = rng.integers(len(array), size=2)
            array[[a, b]] = array[[b, a]]
        elif way == 5 and array.dtype.kind in "iuf":
            flat[place] = flat[place] + array.dtype.type(pick(rng, [1, 2]))
        else:
            raw = flat.view(np.uint8)
            raw[:] = rng.integers(0, 256, raw.size, dtype=np.uint8)
    return array
