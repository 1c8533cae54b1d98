"""The naive Quest twin against what its definition implies, and against mutations that must not pass."""

from dataclasses import replace

import numpy as np
import pytest

import quest as twin
from cases_part2 import QUEST
from checks import GOLDEN, assert_outputs_follow_from_pairs, random_inputs, unnoticed
from choices import assert_float32_chooses_alike, case_named, repeat_heads
from common import frequencies, rotate
from full import full
from golden import differs_from_golden
from quest import Options, quest

KERNEL = Options(page=4, budget=12)
EVALUATION = Options(page=4, budget=16, rule="evaluation")


def pages_of(row, page):
    return sorted({j // page for j, _ in row.keys})


# --- the definition


def test_a_bound_is_no_less_than_any_product_of_its_page():
    q, k, _ = random_inputs(16)
    for query in q[:, 0]:
        assert twin.bound(query, k[:5, 0]) >= (k[:5, 0] @ query).max()
        assert np.isclose(twin.bound(query, k[3:4, 0]), k[3, 0] @ query)


def test_a_bound_takes_the_maximum_where_the_query_is_positive_and_the_minimum_where_it_is_negative():
    keys = np.array([[1.0, -2.0], [3.0, 5.0], [2.0, 7.0]])
    assert twin.bound(np.array([2.0, -1.0]), keys) == 2 * 3 + 2
    assert twin.bound(np.array([-2.0, 1.0]), keys) == -2 + 7


def test_prefill_and_the_first_layers_are_full_attention():
    q, k, v = random_inputs(40)
    dense = full(q, k, v).out
    result = quest(q, k, v, KERNEL, n_prefill=30)
    np.testing.assert_allclose(result.out[:30], dense[:30], rtol=1e-12, atol=1e-12)
    assert not np.allclose(result.out[30:], dense[30:], rtol=1e-2, atol=1e-2)
    for layer in (0, 1):
        np.testing.assert_allclose(quest(q, k, v, KERNEL, 5, layer).out, dense, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("budget,n", [(12, 12), (15, 12), (16, 16), (40, 38)])
def test_kernel_rule_equals_full_attention_while_all_pages_fit(budget, n):
    q, k, v = random_inputs(n + 1, heads=6, kv_heads=2)
    result = quest(q, k, v, Options(page=4, budget=budget), n_prefill=1)
    dense = full(q, k, v).out
    np.testing.assert_allclose(result.out[:n], dense[:n], rtol=1e-12, atol=1e-12)
    dropped = any(len(row.keys) <= n for row in result.rows[n])
    assert dropped == ((n + 1 + 3) // 4 > budget // 4)


def test_evaluation_rule_equals_full_attention_exactly_where_its_page_count_says():
    q, k, v = random_inputs(60)
    for budget in (4, 16, 20, 24, 64):
        options = Options(page=4, budget=budget, rule="evaluation")
        result = quest(q, k, v, options, n_prefill=1)
        for i in range(1, 60):
            n = i + 1
            fits = max(3, min(n, budget) // 4) >= -(-n // 4)
            assert all((len(row.keys) == n) == fits for row in result.rows[i])


def test_evaluation_rule_drops_a_page_below_its_budget():
    q, k, v = random_inputs(70)
    result = quest(q, k, v, Options(page=16, budget=64, rule="evaluation"), n_prefill=1)
    for n in range(1, 71):
        dropped = -(-n // 16) - len(pages_of(result.rows[n - 1][0], 16))
        assert dropped == (1 if 49 <= n <= 63 or n > 64 else 0)


def test_kernel_rule_always_sees_the_open_page_and_as_many_pages_as_the_budget_has():
    q, k, v = random_inputs(61)
    for i, rows in enumerate(quest(q, k, v, KERNEL, n_prefill=1).rows):
        for row in rows:
            assert (i, 0) in row.keys
            assert len(pages_of(row, 4)) == min(i // 4 + 1, 3)


def test_a_page_that_the_token_completes_is_still_the_open_one():
    q, k, v = random_inputs(61)
    q[:, :, :] = -k  # as unlike their own page as can be
    result = quest(q, k, v, replace(KERNEL, budget=4), n_prefill=1)
    for i in range(1, 61):
        assert all(pages_of(row, 4) == [i // 4] for row in result.rows[i])


def test_evaluation_rule_lets_a_token_miss_itself():
    q, k, v = random_inputs(61)
    result = quest(q, k, v, EVALUATION, n_prefill=1)
    assert any((i, 0) not in row.keys for i, rows in enumerate(result.rows) for row in rows)


def test_evaluation_rule_ranks_the_open_page_by_the_keys_it_has():
    # Four pages of one channel pair, three are seen; the open page has two keys of four.
    options, theta = Options(page=4, budget=12, rule="evaluation"), frequencies(2, 10000.0)
    k = rotate(np.ones((14, 2)) * [1.0, 0.0], -np.arange(14), theta)[:, None]  # rotated: all (1, 0)
    k[12:] *= 0.5
    q = rotate(np.ones((14, 2)) * [1.0, 0.0], -np.arange(14), theta)[:, None]
    result = quest(q, k, np.ones_like(k), options, n_prefill=1)
    assert pages_of(result.rows[13][0], 4) == [0, 1, 2]
    k[13] *= 4
    assert pages_of(quest(q, k, np.ones_like(k), options, n_prefill=1).rows[13][0], 4) == [0, 1, 3]


def test_distances_are_true_and_pages_are_whole():
    q, k, v = random_inputs(50, heads=6, kv_heads=2)
    for options in (KERNEL, EVALUATION):
        result = quest(q, k, v, options, n_prefill=7)
        for i, rows in enumerate(result.rows):
            for row in rows:
                whole = [j for page in pages_of(row, 4) for j in range(4 * page, 4 * page + 4) if j <= i]
                assert row.keys == [(j, i - j) for j in whole]
        assert_outputs_follow_from_pairs(result, q, k, v)


def test_a_row_depends_on_its_past_alone_and_not_on_when_decoding_began():
    q, k, v = random_inputs(50)
    whole = quest(q, k, v, KERNEL, n_prefill=10)
    for n in (11, 12, 13, 30):
        np.testing.assert_array_equal(quest(q[:n], k[:n], v[:n], KERNEL, 10).out, whole.out[:n])
    np.testing.assert_array_equal(quest(q, k, v, KERNEL, 33).out[33:], whole.out[33:])


def test_heads_that_share_keys_choose_for_themselves():
    q, k, v = random_inputs(50, heads=6, kv_heads=2)
    grouped = quest(q, k, v, KERNEL, n_prefill=1)
    np.testing.assert_array_equal(grouped.out, quest(*repeat_heads(q, k, v), KERNEL, 1).out)
    assert any(rows[0].keys != rows[1].keys for rows in grouped.rows)


def test_ties_go_to_the_lower_page():
    assert twin.best({4: 1.0, 2: 1.0, 9: 3.0, 1: 0.5}, 2) == ([9, 2], 0.0)
    q, k, v = random_inputs(40)
    result = quest(q, np.zeros_like(k), v, KERNEL, n_prefill=1)
    assert pages_of(result.rows[39][0], 4) == [0, 1, 9]
    result = quest(q, np.zeros_like(k), v, EVALUATION, n_prefill=1)
    assert pages_of(result.rows[39][0], 4) == [0, 1, 2, 3]


# --- goldens and mutations


# The widths of the other gaps are in the manifest, and test_golden.py looks at them.
@pytest.mark.parametrize("case", [c for c in QUEST if c.inputs != "plain"], ids=lambda case: case.name)
def test_float32_cannot_flip_a_choice(case, monkeypatch):
    assert_float32_chooses_alike(case, twin, "best", monkeypatch)


KERNEL_CASES = ["quest-mha", "quest-mqa", "quest-gqa-late-layer"]
EVALUATION_CASES = ["quest-evaluation-three-pages", "quest-evaluation-mqa"]


def test_dropping_the_open_page_is_noticed(monkeypatch):
    original = twin.pages_by_kernel
    monkeypatch.setattr(
        twin,
        "pages_by_kernel",
        lambda bounds, i, options: (
            [
                page
                for page in original(bounds, i, options)[0]
                if page != i // options.page or len(bounds) == 1
            ],
            np.inf,
        ),
    )
    assert not unnoticed(QUEST, *KERNEL_CASES, "quest-tie-zero-keys")


def test_an_open_page_that_must_compete_is_noticed(monkeypatch):
    def competing(bounds, i, options):
        return twin.best(bounds, min(options.budget // options.page, len(bounds)))

    monkeypatch.setattr(twin, "pages_by_kernel", competing)
    assert not unnoticed(QUEST, *KERNEL_CASES)


def test_a_bound_of_the_minima_alone_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "bound", lambda q, keys: float((q * keys.min(axis=0)).sum()))
    assert not unnoticed(QUEST, *KERNEL_CASES, *EVALUATION_CASES)


def test_a_bound_of_the_maxima_alone_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "bound", lambda q, keys: float((q * keys.max(axis=0)).sum()))
    assert not unnoticed(QUEST, *KERNEL_CASES, *EVALUATION_CASES)


def test_the_best_product_in_place_of_the_bound_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "bound", lambda q, keys: float((keys @ q).max()))
    assert not unnoticed(QUEST, *KERNEL_CASES, *EVALUATION_CASES)


def test_unrotated_minima_are_noticed(monkeypatch):
    original = twin.chosen_pages

    def unrotated(q_rotated, k_rotated, i, options):
        theta = frequencies(len(q_rotated), options.base)
        return original(q_rotated, rotate(k_rotated, -np.arange(len(k_rotated)), theta), i, options)

    monkeypatch.setattr(twin, "chosen_pages", unrotated)
    assert not unnoticed(QUEST, *KERNEL_CASES, *EVALUATION_CASES)


def test_a_page_boundary_off_by_one_is_noticed(monkeypatch):
    def shifted(pages, i, options):
        begins = [page * options.page - (page > 0) for page in pages]
        return sorted({j for begin in begins for j in range(begin, begin + options.page) if j <= i} | {i})

    monkeypatch.setattr(twin, "tokens_of", shifted)
    assert not unnoticed(QUEST, *KERNEL_CASES)


def test_a_budget_that_does_not_count_the_open_page_is_noticed(monkeypatch):
    original = twin.best
    monkeypatch.setattr(twin, "best", lambda bounds, count: original(bounds, count + 1))
    assert not unnoticed(QUEST, *KERNEL_CASES, *EVALUATION_CASES)


def test_fewer_than_three_pages_are_noticed(monkeypatch):
    monkeypatch.setattr(
        twin,
        "pages_by_evaluation",
        lambda bounds, i, options: twin.best(
            bounds, min(-(-min(i + 1, options.budget) // options.page), len(bounds))
        ),
    )
    assert not unnoticed(QUEST, "quest-evaluation-three-pages", "quest-evaluation")


def test_choosing_among_ties_by_the_higher_page_is_noticed(monkeypatch):
    def higher(bounds, count):
        return sorted(bounds, key=lambda page: (-bounds[page], -page))[:count], np.inf

    monkeypatch.setattr(twin, "best", higher)
    assert not unnoticed(QUEST, "quest-tie-zero-keys", "quest-tie-some-zero-keys", "quest-evaluation-tie")


def test_one_choice_for_all_heads_is_noticed(monkeypatch):
    original, first = twin.chosen_pages, {}
    monkeypatch.setattr(
        twin, "chosen_pages", lambda q, k, i, options: first.setdefault(i, original(q, k, i, options))
    )
    for name in ("quest-gqa", "quest-mqa", "quest-evaluation"):
        first.clear()
        assert not unnoticed(QUEST, name)


def test_a_layer_that_ought_to_be_dense_is_noticed():
    for name in ("quest-dense-layer", "quest-gqa-late-layer"):
        case = case_named(QUEST, name)
        assert differs_from_golden(replace(case, layer=3 - case.layer if case.layer < 3 else 0), GOLDEN)
