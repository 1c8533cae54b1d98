"""What the tests of the twins share: inputs, a second derivation of the outputs, comparisons with goldens."""

import os
import pathlib

import numpy as np

from full import full
from golden import differs_from_golden
from uniform import uniform

GOLDENS = pathlib.Path(os.environ["LONGHEADS_GOLDENS"])  # conftest.py sees to it
GOLDEN = GOLDENS / "methods"


def random_inputs(n, heads=2, kv_heads=1, dim=8, seed=7):
    q = 3 * uniform("q", seed, (n, heads, dim)).astype(np.float64)
    k = 2 * uniform("k", seed, (n, kv_heads, dim)).astype(np.float64)
    v = 4 * uniform("v", seed, (n, kv_heads, dim)).astype(np.float64)
    return q, k, v


def keys_of(result, i, head=0):
    """[(key, distance)], sorted."""
    return sorted(result.rows[i][head].keys)


def distances(result, i, head=0):
    """By ascending key."""
    return [distance for _, distance in keys_of(result, i, head)]


def logit(q, k, distance, base=10000.0):
    """q^T R(-distance) k with each pair (x[m], x[m + d/2]) as a complex number: by no code of the twins."""
    half = len(q) // 2
    turn = np.exp(-1j * distance * base ** (-np.arange(half) / half))
    return float((np.conj(q[:half] + 1j * q[half:]) * turn * (k[:half] + 1j * k[half:])).sum().real)


def assert_outputs_follow_from_pairs(result, q, k, v, rows=None):
    """The outputs are one softmax over just the pairs and scales that the twin reports."""
    group = q.shape[1] // k.shape[1]
    for i in range(len(q)) if rows is None else rows:
        for head, row in enumerate(result.rows[i]):
            logits = [row.scale * logit(q[i, head], k[j, head // group], d) for j, d in row.keys]
            weights = np.exp(np.array(logits) - max(logits))
            values = v[[j for j, _ in row.keys], head // group]
            np.testing.assert_allclose(
                result.out[i, head], weights @ values / weights.sum(), rtol=1e-10, atol=1e-10
            )
            assert np.isclose(row.max_logit, np.abs(logits).max())


def assert_equals_full(result, q, k, v, rows=slice(None)):
    reference = full(q, k, v)
    np.testing.assert_allclose(result.out[rows], reference.out[rows], rtol=1e-11, atol=1e-11)
    for row, expected in zip(result.rows[rows], reference.rows[rows]):
        assert all(sorted(a.keys) == b.keys for a, b in zip(row, expected))


def assert_rows_know_nothing_later(run, q, k, v, lengths):
    """run(q, k, v) -> Result."""
    whole = run(q, k, v)
    for n in lengths:
        part = run(q[:n], k[:n], v[:n])
        assert [[x.keys for x in rows] for rows in part.rows] == [
            [x.keys for x in rows] for rows in whole.rows[:n]
        ]
        np.testing.assert_allclose(part.out, whole.out[:n], rtol=1e-12, atol=1e-12)


def unnoticed(cases, *names):
    """Those of the named cases whose goldens the twin, mutated as it now is, still reproduces."""
    named = {case.name: case for case in cases}
    return [name for name in names if not differs_from_golden(named[name], GOLDEN)]
