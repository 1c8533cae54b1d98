"""What the tests of the twins that choose share: a key/value head for every query head, noise of the size of
float32's rounding."""

import numpy as np

from golden import arrays_of


def repeat_heads(q, k, v):
    """The same attention with a key/value head for every query head."""
    group = q.shape[1] // k.shape[1]
    return q, np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)


def sets_of(result):
    return [[sorted(row.keys) for row in rows] for rows in result.rows]


def case_named(cases, name):
    return next(case for case in cases if case.name == name)


def noisy(scores, amount=2e-5):
    """Scores off by up to `amount` of the largest, equal ones by the same and zeros by nothing: what float32
    may make of them, and more."""
    values = np.asarray(scores, dtype=np.float64)
    largest = np.abs(values).max() if values.size else 0.0
    bits = values.view(np.uint64).astype(object)
    noise = np.array([(int(x) * 0x9E3779B97F4A7C15 >> 40) % 2001 / 1000 - 1 for x in bits.ravel()])
    return values + np.where(values == 0, 0.0, amount * largest * noise.reshape(values.shape))


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
