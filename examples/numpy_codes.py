"""Codes without gphash: the function below reads a model file and encodes rows, with numpy alone.

    gphash fit digits:train --bits 32 -o digits.gph
    python examples/numpy_codes.py digits.gph rows.npy

It takes what GPHasher learns from labels with its default kernel. The format of the file is explained at the top of
src/gphash/container.py, and the formulas are in src/gphash/method/posteriors.py. Without arguments, a model of the
digits is made and its codes are compared with ours.
"""

import json
import sys
from pathlib import Path

import numpy as np


def encode(path, X):
    data = Path(path).read_bytes()
    length = int.from_bytes(data[8:16], "little")
    header = json.loads(data[16 : 16 + length])
    meta, start = header["meta"], -(-(48 + length) // 64) * 64  # 32 bytes of checksum, then the next multiple of 64
    of = {a["name"]: np.ndarray(a["shape"], a["dtype"], data, start + a["offset"]) for a in header["arrays"]}
    assert (meta["form"], meta["exclusive"], meta["kernel"]["name"]) == ("posteriors", True, "squared-exponential")
    x = (X - of["scaling_mean"]) @ of.get("scaling_metric", np.eye(X.shape[1]))
    if meta["unit_length"]:
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
    squared = (x**2).sum(axis=1)[:, None] + (of["Z"].astype(float) ** 2).sum(axis=1) - 2 * x @ of["Z"].T
    k = meta["kernel"]["signal_scale"] ** 2 * np.exp(-squared / 2 / meta["kernel"]["length_scale"] ** 2)
    p = np.exp((logits := k @ of["weights"] + of["bias"]) - logits.max(axis=1, keepdims=True))
    p = (p / p.sum(axis=1, keepdims=True)) ** meta["power"]
    return np.packbits(p @ of["directions"] + of["offset"] >= 0, axis=1)


def main():
    if len(sys.argv) == 3:
        print(encode(sys.argv[1], np.load(sys.argv[2])))
        return
    from sklearn.datasets import load_digits

    from gphash import GPHasher

    X, y = load_digits(return_X_y=True)
    hasher = GPHasher(n_bits=32, n_inducing=300, random_state=0).fit(X[:1200], y[:1200])
    hasher.save("digits.gph")
    equal = encode("digits.gph", X) == hasher.encode(X)
    print(f"{equal.all(axis=1).sum():,} of {len(X):,} codes are equal")
    if not equal.all():
        sys.exit("they should all be")


if __name__ == "__main__":
    main()
