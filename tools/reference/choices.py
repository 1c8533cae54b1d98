"""What the tests of the twins that choose share: random inputs, full attention as one matrix product, noise of
the size of float32's rounding, and mutations held against goldens."""

import pathlib

import numpy as np

from common import frequencies, rotate, softmax
from golden import arrays_of, differs_from_golden
from uniform import uniform

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/methods"


def random_inputs(n, heads=2, kv_heads=1, dim=8, seed=7):
    q = 3 * uniform("q", seed, (n, heads, dim)).astype(np.float64)
    k = 2 * uniform("k", seed, (n, kv_heads, dim)).astype(np.float64)
    v = 4 * uniform("v", seed, (n, kv_heads, dim)).astype(np.float64)
    return q, k, v


def full_attention(q, k, v, base=10000.0):
    n, heads, dim = q.shape
    group, theta = heads // k.shape[1], frequencies(dim, base)
    at = np.arange(n)[:, None]
    q, k = rotate(q, at, theta), rotate(k, at, theta)
    out = np.zeros_like(q)
    for h in range(heads):
        logits = q[:, h] @ k[:, h // group].T / np.sqrt(dim)
        out[:, h] = softmax(np.where(np.tri(n) > 0, logits, -np.inf)) @ v[:, h // group]
    return out


def output_of(pairs, q, k, v, base=10000.0):
    """[d]: one softmax over the (key, distance) pairs of one query. q: [d]; k, v: [n, d] of its KV head."""
    theta, dim = frequencies(len(q), base), len(q)
    logits = [q @ rotate(k[j], -distance, theta) / np.sqrt(dim) for j, distance in pairs]
    return softmax(np.array(logits)) @ v[[j for j, _ in pairs]]


def repeat_heads(q, k, v):
    """The same attention with a key/value head for every query head."""
    group = q.shape[1] // k.shape[1]
    return q, np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)


def noisy(scores, amount=2e-5):
    """Scores off by up to `amount` of the largest, equal ones by the same: what float32 may make of them, and
    more."""
    values = np.asarray(scores, dtype=np.float64)
    largest = np.abs(values).max() if values.size else 0.0
    bits = values.view(np.uint64).astype(object)
    noise = np.array([(int(x) * 0x9E3779B97F4A7C15 >> 40) % 2001 / 1000 - 1 for x in bits.ravel()])
    return values + np.where(values == 0, 0.0, amount * largest * noise.reshape(values.shape))


def sets_of(result):
    return [[sorted(row.keys) for row in rows] for rows in result.rows]


def case_named(cases, name):
    return next(case for case in cases if case.name == name)


def unnoticed(cases, names):
    """Those of the named cases whose goldens the twin, mutated as it now is, still reproduces."""
    return [name for name in names if not differs_from_golden(case_named(cases, name), GOLDEN)]


def assert_float32_chooses_alike(case, twin, name, monkeypatch):
    """The case runs as it is, and again with noise on the scores that the twin's function `name` gets as its
    first argument: an array, or a dictionary of them."""
    result = case.run()
    _, entry = arrays_of(case, result)
    assert entry["min_gap"] is None or entry["min_gap"] > 1e-4
    assert (entry["n_ties"] > 0) == (case.inputs != "plain")
    original = getattr(twin, name)

    def off(scores, *rest):
        if isinstance(scores, dict):
            return original(dict(zip(scores, noisy(list(scores.values())))), *rest)
        return original(noisy(scores), *rest)

    monkeypatch.setattr(twin, name, off)
    assert sets_of(case.run()) == sets_of(result)
