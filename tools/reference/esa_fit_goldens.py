"""Writes what the closed-form compression of ESA's scores is on inputs both sides can generate; the build does
so, for the tests. manifest.json says what the arrays hold.

Usage: esa_fit_goldens.py OUT_DIR
"""

import argparse
import json
import pathlib

import numpy as np

from esa_fit import fit, second_moment, squared_error, vectors
from uniform import uniform

FORMAT = {
    "inputs": (
        "float32, unrotated, half-split. q [n, heads, dim] is uniform('q', seed), k [n, kv_heads, dim] is"
        " uniform('k', seed) (tools/reference/uniform.py); then element x of every head of both is multiplied"
        " by 1 / (1 + x mod (dim / 2)) in float32, so that dimensions matter unequally"
    ),
    "vectors": (
        "q of the fit is, KV head after KV head, the sum of the queries that share it, rotated by w; k is the"
        " keys of all KV heads, unrotated. All n tokens are the calibration"
    ),
    "CASE.product.npy": "float32 [kv_heads * dim, kv_heads * dim]: W_q^T W_k, which alone is determined",
    "CASE.singular.npy": "float32 [kv_heads * dim]: singular values of Sq^(1/2) Sk^(1/2), descending",
    "error": "sum over all pairs of (q.k - (W_q q).(W_k k))^2, relative to the sum of (q.k)^2",
    "gap": "(last singular value kept - first one dropped) / largest: how well determined the product is",
}


def case(name, heads, kv_heads, dim, n, rank, w, base=10000.0, seed=1):
    return locals()


CASES = [
    case("mha", 2, 2, 16, n=100, rank=8, w=40, seed=20),
    case("gqa", 6, 2, 16, n=150, rank=8, w=64, base=100000.0, seed=54),
    case("mqa", 4, 1, 32, n=120, rank=6, w=33, seed=8),
    case("fewer-tokens-than-dimensions", 4, 2, 16, n=20, rank=10, w=24, seed=7),
]


def make_inputs(c):
    x = np.arange(c["dim"]) % (c["dim"] // 2)
    fade = np.float32(1) / (1 + x).astype(np.float32)
    shapes = {"q": c["heads"], "k": c["kv_heads"]}
    return [uniform(name, c["seed"], (c["n"], heads, c["dim"])) * fade for name, heads in shapes.items()]


def arrays_of(c):
    """The golden's arrays by name, and its manifest entry."""
    q, k = vectors(*make_inputs(c), c["w"], c["base"])
    sq, sk = second_moment(q), second_moment(k)
    w_q, w_k, s = fit(sq, sk, c["rank"])
    arrays = {"product": (w_q.T @ w_k).astype(np.float32), "singular": s.astype(np.float32)}
    error = squared_error(w_q, w_k, sq, sk) / ((q @ k.T) ** 2).sum()
    gap = (s[c["rank"] - 1] - s[c["rank"]]) / s[0]
    return arrays, c | {"error": float(f"{error:.6g}"), "gap": float(f"{gap:.6g}")}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out_dir", type=pathlib.Path)
    arguments = parser.parse_args()

    arguments.out_dir.mkdir(parents=True, exist_ok=True)
    entries = []
    for c in CASES:
        arrays, entry = arrays_of(c)
        for name, array in arrays.items():
            np.save(arguments.out_dir / f"{c['name']}.{name}.npy", array)
        entries.append(entry)
    text = json.dumps({"format": FORMAT, "cases": entries}, indent=1)
    (arguments.out_dir / "manifest.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
