"""The naive Self-Extend twin against what its definition implies, and mutations that must not pass."""

from fractions import Fraction

import numpy as np
import pytest

import self_extend as twin
from cases_part1 import SELF_EXTEND
from checks import (
    assert_equals_full,
    assert_outputs_follow_from_pairs,
    assert_rows_know_nothing_later,
    distances,
    random_inputs,
    unnoticed,
)
from self_extend import Options, positions, self_extend


def distance(i, j, options):
    query, key = positions(i, j, options)
    return query - key


def row(i, options):
    return [distance(i, j, options) for j in range(i + 1)]


def test_published_example():
    options = Options(group=2, window=4)
    assert row(9, options) == [6, 6, 5, 5, 4, 4, 3, 2, 1, 0]
    assert row(5, options) == [4, 4, 3, 2, 1, 0]
    assert max(max(row(i, options)) for i in range(10)) == 7 - 1
    assert row(6, Options(group=3, window=4)) == [5, 5, 5, 3, 2, 1, 0]
    result = self_extend(*random_inputs(10), options)
    assert distances(result, 9) == [6, 6, 5, 5, 4, 4, 3, 2, 1, 0]


def test_first_grouped_distance_is_the_window_or_one_more():
    for group in range(1, 9):
        for window in range(1, 20):
            options = Options(group=group, window=window)
            first = {distance(i, i - window, options) for i in range(window, window + 3 * group)}
            assert first == ({window} if window % group == 0 else {window, window + 1})


def test_fractions_of_the_official_eager_form():
    options = Options(group=5, window=64, fraction="exact")
    first = {round(distance(i, i - 64, options), 9) for i in range(64, 84)}
    assert first == {63.2, 64.2}
    for group, window in [(5, 12), (7, 31), (4, 16), (3, 10), (12, 8)]:
        floor = Options(group=group, window=window)
        exact = Options(group=group, window=window, fraction="exact")
        for i in range(60):
            for j in range(i + 1):
                lost = Fraction(window % group, group) if i - j >= window else 0
                assert np.isclose(distance(i, j, floor) - distance(i, j, exact), float(lost))


def test_distances_never_fall_with_the_key_farther_away():
    for options in (Options(5, 12), Options(7, 31), Options(12, 8), Options(3, 1)):
        for i in range(100):
            assert all(a >= b for a, b in zip(row(i, options), row(i, options)[1:]))


def test_grouped_distance_is_a_difference_of_floors():
    options = Options(group=5, window=12)
    shortcut = [
        (i, j) for i in range(60) for j in range(i - 11) if distance(i, j, options) != 12 + (i - j - 12) // 5
    ]
    assert shortcut


@pytest.mark.parametrize(
    "trained,window,group,longest", [(4096, 1024, 5, 16380), (4096, 1024, 4, 13312), (32, 14, 5, 100)]
)
def test_longest_text_that_fits(trained, window, group, longest):
    options = Options(group=group, window=window)
    assert distance(longest - 1, 0, options) == trained - 1
    assert distance(longest, 0, options) == trained


@pytest.mark.parametrize("heads,kv_heads,dim", [(2, 2, 8), (6, 2, 8), (4, 1, 12)])
@pytest.mark.parametrize("fraction", ["floor", "exact"])
def test_equals_full_with_groups_of_one_and_within_the_window(heads, kv_heads, dim, fraction):
    q, k, v = random_inputs(37, heads, kv_heads, dim)
    assert_equals_full(self_extend(q, k, v, Options(1, 9, fraction)), q, k, v)
    assert_equals_full(self_extend(q, k, v, Options(5, 37, fraction)), q, k, v)
    assert_equals_full(self_extend(q, k, v, Options(5, 12, fraction)), q, k, v, slice(0, 12))


@pytest.mark.parametrize("options", [Options(2, 4), Options(5, 12), Options(5, 12, "exact"), Options(12, 8)])
def test_distances_are_those_of_two_masked_tables(options):
    # As the paper's pseudo-code has it: a table of logits each for neighbours and groups, one mask between.
    n, at = 61, np.arange(61)
    offset = options.window - options.window // options.group
    if options.fraction == "exact":
        offset = Fraction(options.window * (options.group - 1), options.group)
    grouped = (at // options.group)[:, None] - (at // options.group)[None] + float(offset)
    true = at[:, None] - at[None]
    table = np.where(true < options.window, true, grouped)
    result = self_extend(*random_inputs(n), options)
    for i in range(n):
        assert np.allclose(distances(result, i), table[i, : i + 1])


@pytest.mark.parametrize("options", [Options(5, 12), Options(5, 12, "exact", log_n=7)])
def test_outputs(options):
    q, k, v = random_inputs(41, heads=6, kv_heads=2)
    result = self_extend(q, k, v, options)
    assert_outputs_follow_from_pairs(result, q, k, v)
    assert_rows_know_nothing_later(lambda *x: self_extend(*x, options), q, k, v, (1, 11, 12, 13, 30))


def test_log_n_scale_begins_after_its_length():
    q, k, v = random_inputs(40)
    off, on = self_extend(q, k, v, Options(3, 10)), self_extend(q, k, v, Options(3, 10, log_n=24))
    np.testing.assert_array_equal(off.out[:24], on.out[:24])
    assert all(np.abs(off.out[i] - on.out[i]).max() > 1e-4 for i in range(24, 40))
    assert np.isclose(on.rows[39][0].scale, np.log(40) / np.log(24) / np.sqrt(8))


# --- mutations

UNEVEN = ("self-extend-uneven", "self-extend-uneven-mqa", "self-extend-exact")
EVEN = ("self-extend-mha", "self-extend-exact-even")


def test_a_window_off_by_one_is_noticed_where_the_group_does_not_divide_it(monkeypatch):
    monkeypatch.setattr(twin, "is_neighbour", lambda i, j, options: i - j <= options.window)
    assert unnoticed(SELF_EXTEND, *UNEVEN) == []
    assert unnoticed(SELF_EXTEND, *EVEN) == list(EVEN)  # a grouped distance at W is W there


def test_a_window_one_short_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "is_neighbour", lambda i, j, options: i - j < options.window - 1)
    assert unnoticed(SELF_EXTEND, *UNEVEN, *EVEN) == []


def test_division_for_floor_is_noticed(monkeypatch):
    original = twin.shift
    other = {"floor": "exact", "exact": "floor"}
    monkeypatch.setattr(
        twin, "shift", lambda o: original(Options(o.group, o.window, fraction=other[o.fraction]))
    )
    # The pairs of a fractional case are then whole, or those of a whole one no integers.
    for name in UNEVEN:
        try:
            assert unnoticed(SELF_EXTEND, name) == []
        except AssertionError as error:
            assert "unit" in str(error)
    assert unnoticed(SELF_EXTEND, *EVEN) == list(EVEN)


def test_a_grouped_query_without_its_shift_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "shift", lambda options: 0)
    assert unnoticed(SELF_EXTEND, *UNEVEN, *EVEN) == []


def test_grouping_the_difference_is_noticed(monkeypatch):
    def mutated(i, j, options):
        if i - j < options.window:
            return i, j
        return options.window + (i - j - options.window) // options.group, 0

    monkeypatch.setattr(twin, "positions", mutated)
    assert unnoticed(SELF_EXTEND, *UNEVEN, *EVEN) == []


def test_the_log_n_scale_is_noticed_when_it_is_one_token_late(monkeypatch):
    original = twin.logit_scale
    monkeypatch.setattr(twin, "logit_scale", lambda i, d, options: original(max(i - 1, 0), d, options))
    assert unnoticed(SELF_EXTEND, "self-extend-log-n", "self-extend-exact-even") == []
