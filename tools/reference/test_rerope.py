"""The naive ReRoPE and Leaky ReRoPE twin against what its definition implies, and against mutations that must
not pass."""

import numpy as np
import pytest

import rerope as twin
from cases_part1 import REROPE
from checks import (
    assert_equals_full,
    assert_outputs_follow_from_pairs,
    assert_rows_know_nothing_later,
    distances,
    random_inputs,
    unnoticed,
)
from rerope import Options, distance, rerope

PLAIN = dict(log_n=False)


def test_distances_of_a_row():
    result = rerope(*random_inputs(10), Options(window=4, **PLAIN))
    assert distances(result, 9) == [4, 4, 4, 4, 4, 4, 3, 2, 1, 0]
    result = rerope(*random_inputs(10), Options(window=4, factor=2, **PLAIN))
    assert distances(result, 9) == [6.5, 6, 5.5, 5, 4.5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("heads,kv_heads,dim", [(2, 2, 8), (6, 2, 8), (4, 1, 12)])
def test_equals_full_within_the_window_or_with_a_factor_of_one(heads, kv_heads, dim):
    q, k, v = random_inputs(37, heads, kv_heads, dim)
    assert_equals_full(rerope(q, k, v, Options(37, log_n_base=37)), q, k, v)
    assert_equals_full(rerope(q, k, v, Options(37, factor=16, log_n_base=37)), q, k, v)
    assert_equals_full(rerope(q, k, v, Options(9, factor=1, **PLAIN)), q, k, v)
    # The distance at the window itself is the true one.
    assert_equals_full(rerope(q, k, v, Options(9, **PLAIN)), q, k, v, slice(0, 10))
    assert_equals_full(rerope(q, k, v, Options(9, factor=16, **PLAIN)), q, k, v, slice(0, 10))


def test_leaky_with_a_huge_factor_is_rerope():
    inputs = random_inputs(37)
    a, b = (rerope(*inputs, Options(9, factor, **PLAIN)) for factor in (None, 1e12))
    np.testing.assert_allclose(a.out, b.out, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("factor", [None, 4, 16])
def test_distances_are_those_of_two_score_tables_on_their_planes(factor):
    # Far keys: unrotated under a query at w, or at j/k under a query at (i + w(k - 1))/k.
    n, w, at = 61, 12, np.arange(61)
    near = at[:, None] - at[None]
    if factor is None:
        far = np.full((n, n), w)
    else:
        far = (at[:, None] + w * (factor - 1)) / factor - at[None] / factor
    table = np.where(near < w, near, far)
    result = rerope(*random_inputs(n), Options(w, factor, **PLAIN))
    for i in range(n):
        assert np.allclose(distances(result, i), table[i, : i + 1])


@pytest.mark.parametrize("factor", [None, 4])
def test_outputs(factor):
    q, k, v = random_inputs(41, heads=6, kv_heads=2)
    options = Options(12, factor, log_n_base=20)
    assert_outputs_follow_from_pairs(rerope(q, k, v, options), q, k, v)
    assert_rows_know_nothing_later(lambda *x: rerope(*x, options), q, k, v, (1, 11, 12, 13, 30))


def test_log_n_scale_begins_after_its_length():
    q, k, v = random_inputs(40)
    off, on = rerope(q, k, v, Options(10, **PLAIN)), rerope(q, k, v, Options(10, log_n_base=24))
    np.testing.assert_array_equal(off.out[:24], on.out[:24])  # the ratio at i = 23 is exactly 1
    assert all(np.abs(off.out[i] - on.out[i]).max() > 1e-4 for i in range(24, 40))
    assert np.isclose(on.rows[39][0].scale, np.log(40) / np.log(24) / np.sqrt(8))
    assert [x.keys for x in on.rows[39]] == [x.keys for x in off.rows[39]]


# --- mutations

REROPES = ("rerope-gqa", "rerope-window-of-one")
LEAKY = ("leaky-rerope-mha", "leaky-rerope-mqa")


@pytest.mark.parametrize("off", [-1, 1])
def test_a_window_off_by_one_is_noticed(off, monkeypatch):
    monkeypatch.setattr(
        twin, "distance", lambda i, j, o: distance(i, j, Options(max(o.window + off, 0) or 2, o.factor))
    )
    assert unnoticed(REROPE, *REROPES, *LEAKY) == []


def test_a_far_distance_one_short_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "distance", lambda i, j, o: distance(i, j, o) - (i - j >= o.window))
    assert unnoticed(REROPE, *REROPES, *LEAKY) == []


def test_leaking_from_zero_is_noticed(monkeypatch):
    monkeypatch.setattr(
        twin, "distance", lambda i, j, o: i - j if i - j < o.window else o.window + (i - j) / o.factor
    )
    assert unnoticed(REROPE, *LEAKY) == []


def test_clamping_for_leaking_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "distance", lambda i, j, o: min(i - j, o.window))
    assert unnoticed(REROPE, *LEAKY) == []


@pytest.mark.parametrize(
    "mutation",
    [
        lambda i, o: 1.0,
        lambda i, o: max(1.0, np.log(max(i, 1)) / np.log(o.log_n_base)),  # one token late
        lambda i, o: np.log(i + 2) / np.log(o.log_n_base),
        lambda i, o: max(1.0, np.log(i + 1) / np.log(o.window)),
    ],
)
def test_another_log_n_scale_is_noticed(mutation, monkeypatch):
    monkeypatch.setattr(twin, "log_n_scale", mutation)
    assert unnoticed(REROPE, "rerope-log-n", "rerope-log-n-of-window", "leaky-rerope-mqa") == []
