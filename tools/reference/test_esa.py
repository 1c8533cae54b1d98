"""The naive ESA twin against what its definition implies, and against mutations that must not pass."""

from dataclasses import replace

import numpy as np
import pytest

import esa as twin
from cases_part2 import ESA, projections_of
from checks import GOLDEN, assert_outputs_follow_from_pairs, random_inputs, unnoticed
from choices import assert_float32_chooses_alike, case_named, repeat_heads, sets_of
from common import frequencies, rotate
from esa import Options, esa
from full import full
from golden import differs_from_golden

SMALL = Options(n_init=3, k=8, n_local=10, chunk=4, eps=1)


def seen(result, i, head=0):
    return {j for j, _ in result.rows[i][head].keys}


# --- the definition


def test_chunks_are_cut_inside_calls_and_a_decoded_token_is_one():
    assert twin.chunks_of(12, 10, None, 4) == [(0, 4), (4, 8), (8, 10), (10, 11), (11, 12)]
    assert twin.chunks_of(10, 10, [5, 1, 4], 4) == [(0, 4), (4, 5), (5, 6), (6, 10)]


def test_tokens_are_left_behind_by_whole_chunks_and_the_first_become_the_initial_ones():
    assert [twin.parts_of(begin, SMALL) for begin in (0, 10, 11, 13, 14, 20)] == [
        (0, 0),
        (0, 0),
        (1, 1),
        (3, 3),
        (3, 4),
        (3, 10),
    ]


@pytest.mark.parametrize("n_local,chunk", [(10, 4), (12, 4), (5, 8), (7, 1), (8, 8)])
def test_equals_full_attention_up_to_the_row_that_the_definition_says(n_local, chunk):
    q, k, v = random_inputs(40, heads=6, kv_heads=2)
    options = replace(SMALL, n_local=n_local, chunk=chunk)
    dense = full(q, k, v).out
    first_other = chunk * (n_local // chunk + 1)
    result = esa(q, k, v, options)
    np.testing.assert_allclose(result.out[:first_other], dense[:first_other], rtol=1e-12, atol=1e-12)
    assert (0, n_local) in result.rows[first_other][0].keys and first_other > n_local
    result = esa(q, k, v, options, n_prefill=0)
    np.testing.assert_allclose(result.out[: n_local + 1], dense[: n_local + 1], rtol=1e-12, atol=1e-12)
    assert result.rows[n_local + 1][0].keys[:2] == [(0, n_local), (1, n_local)]


def test_every_part_is_at_its_distance():
    q, k, v = random_inputs(60, heads=6, kv_heads=2)
    result = esa(q, k, v, SMALL, n_prefill=44)
    for i, rows in enumerate(result.rows):
        begin = i - i % 4 if i < 44 else i
        left_behind = max(0, begin - 10)
        for row in rows:
            distance = dict(row.keys)
            local = [j for j in distance if j >= left_behind]
            assert local == list(range(left_behind, i + 1))
            assert all(distance[j] == i - j for j in local)
            far = [j for j in distance if j < left_behind]
            assert all(distance[j] == 10 for j in far)
            assert far[:3] == list(range(min(3, left_behind)))
            assert len(far) == min(left_behind, 3 + 8)
    assert_outputs_follow_from_pairs(result, q, k, v)


def test_k_that_covers_the_middle_sees_everything():
    q, k, v = random_inputs(60)
    for i, rows in enumerate(esa(q, k, v, replace(SMALL, k=60), n_prefill=44).rows):
        assert all([j for j, _ in row.keys] == list(range(i + 1)) for row in rows)


def test_all_heads_and_all_queries_of_a_chunk_share_the_choice():
    q, k, v = random_inputs(60, heads=6, kv_heads=2)
    result = esa(q, k, v, SMALL)
    for begin in range(0, 60, 4):
        middle = [
            seen(result, i, h) & set(range(3, begin - 10)) for i in range(begin, begin + 4) for h in range(6)
        ]
        assert all(x == middle[0] for x in middle)
    assert len(result.gaps) == 15


def test_the_score_is_the_product_at_distance_w_summed_over_heads():
    q, k, _ = random_inputs(30, heads=6, kv_heads=2)
    theta = frequencies(8, 10000.0)
    f = twin.importance(rotate(q[20:24], 10, theta), k[:9], SMALL, None)
    expected = sum(q[22, h] @ rotate(k[5, h // 3], -10, theta) for h in range(6))
    assert np.isclose(f[2, 5], expected)


def test_queries_that_share_keys_can_be_added_up_first():
    q, k, _ = random_inputs(30, heads=6, kv_heads=2)
    direct = twin.importance(q, k, SMALL, None)
    np.testing.assert_allclose(twin.folded(q, 2) @ k.reshape(30, -1).T, direct, rtol=1e-12, atol=1e-12)


def test_scores_compressed_by_an_invertible_pair_are_the_exact_ones():
    q, k, v = random_inputs(60, heads=6, kv_heads=2)
    w_q = random_inputs(16, 1, 1, 16)[0][:, 0]
    w_k = np.linalg.inv(w_q).T
    exact = esa(q, k, v, SMALL, n_prefill=44)
    options = replace(SMALL, score="compressed", dim=16)
    compressed = esa(q, k, v, options, n_prefill=44, projections=(w_q, w_k))
    assert sets_of(compressed) == sets_of(exact)
    np.testing.assert_array_equal(compressed.out, exact.out)
    poor = esa(q, k, v, replace(options, dim=2), 44, projections=(w_q[:2], w_k[:2]))
    assert sets_of(poor) != sets_of(exact)


def test_one_heads_choice_is_the_largest_product_of_any_head():
    q, k, v = random_inputs(60, heads=6, kv_heads=2)
    f = twin.importance(q[20:24], k[:9], replace(SMALL, share="individual"), None)
    assert np.isclose(f[2, 5], max(q[22, h] @ k[5, h // 3] for h in range(6)))
    assert sets_of(esa(q, k, v, replace(SMALL, share="individual"))) != sets_of(esa(q, k, v, SMALL))
    one_head = q[:, :1], k[:, :1], v[:, :1]
    individual = esa(*one_head, replace(SMALL, share="individual"))
    assert sets_of(individual) == sets_of(esa(*one_head, SMALL))
    with pytest.raises(AssertionError):
        replace(SMALL, share="individual", score="compressed", dim=4)


def test_scores_are_relative_to_the_best_key_of_each_query():
    f = np.array([[9.0, 8.0, 1.0, 0.0], [0.5, 0.1, 0.2, 0.4]])
    np.testing.assert_allclose(twin.relative_scores(f), [0, -0.4, -0.3, -0.1])
    # In decode the best key only shifts all scores.
    np.testing.assert_allclose(twin.relative_scores(f[:1]), f[0] - 9)


def test_proximity_reaches_eps_tokens_and_not_out_of_the_middle():
    s = np.array([5.0, 1.0, 2.0, 0.0, 0.0, 0.0, 3.0])
    np.testing.assert_array_equal(twin.smoothed(s, 0), s)
    np.testing.assert_array_equal(twin.smoothed(s, 1), [5, 5, 2, 2, 0, 3, 3])
    np.testing.assert_array_equal(twin.smoothed(s, 2), [5, 5, 5, 2, 3, 3, 3])
    np.testing.assert_array_equal(twin.smoothed(s, 9), [5] * 7)


def test_initial_and_local_keys_lend_no_proximity():
    q, k, v = random_inputs(40)
    options = replace(SMALL, k=4, eps=2)
    whole = esa(q, k, v, options)
    loud = k.copy()
    loud[[0, 1, 2] + list(range(26, 40))] *= 1000
    # The chunk at 36 has M = [3, 26).
    assert seen(esa(q, loud, v, options), 36) == seen(whole, 36)


def test_ties_go_to_the_larger_score_and_then_to_the_lower_index():
    s = np.array([-1.0, 0.0, -3.0, -4.0, -2.0, 0.0, -5.0, -5.0])
    order = twin.ranking(s, twin.smoothed(s, 1))
    assert order == [1, 5, 0, 4, 2, 6, 3, 7]
    assert twin.ranking(np.zeros(4), np.zeros(4)) == [0, 1, 2, 3]


def test_the_gap_looks_at_the_whole_group_of_equal_scores():
    f = np.array([[10.0, 4.0, 3.0, 7.0, 2.0]])
    s = twin.relative_scores(f)

    def gap(eps, count):
        s_smooth = twin.smoothed(s, eps)
        return twin.gap_of(f, s, s_smooth, twin.ranking(s, s_smooth), count)

    assert np.isclose(gap(0, 1), 0.3)  # 10 against 7
    # With eps = 1 there are two groups: 10 with its neighbour 4, and 7 with its neighbours 3 and 2.
    assert np.isclose(gap(1, 1), 0.3)  # 10 against 4, 6 apart; but the group of 7 is only 3 below
    assert np.isclose(gap(1, 2), 0.3)
    assert np.isclose(gap(1, 3), 0.3)  # 7 against 3, 4 apart; but the group of 10 is only 3 above
    assert np.isclose(gap(1, 4), 0.1)  # 3 against 2
    assert twin.gap_of(np.zeros((1, 3)), np.zeros(3), np.zeros(3), [0, 1, 2], 1) == 0


def test_canonical_decode_step_sees_the_sliding_window_that_prefill_does_not():
    q, k, v = random_inputs(60)
    prefill, decode = esa(q, k, v, SMALL), esa(q, k, v, SMALL, n_prefill=40)
    assert sets_of(prefill)[:40] == sets_of(decode)[:40]
    assert min(j for j, d in decode.rows[47][0].keys if j > 20 and d == 47 - j) <= 37
    assert seen(decode, 47) != seen(prefill, 47)
    ones = esa(q, k, v, SMALL, calls=[1] * 60)
    assert sets_of(ones) == sets_of(esa(q, k, v, SMALL, n_prefill=0))


def test_heads_that_share_keys_are_as_with_keys_of_their_own():
    q, k, v = random_inputs(60, heads=6, kv_heads=2)
    repeated = esa(*repeat_heads(q, k, v), SMALL)
    np.testing.assert_allclose(esa(q, k, v, SMALL).out, repeated.out, rtol=1e-12, atol=1e-12)


def test_a_row_depends_on_its_chunk_and_its_past_alone():
    q, k, v = random_inputs(60)
    whole = esa(q, k, v, SMALL, n_prefill=40)
    for n in (4, 8, 24, 40, 41, 50):
        part = esa(q[:n], k[:n], v[:n], SMALL, n_prefill=min(n, 40))
        np.testing.assert_array_equal(part.out, whole.out[:n])


def test_equal_keys_tie_to_the_last_digit():
    q, k, _ = random_inputs(40, heads=6, kv_heads=2)
    k = k[np.arange(40) % 7]
    w = random_inputs(16, 1, 1, 16)[0][:, 0]
    for options in (SMALL, replace(SMALL, share="individual"), replace(SMALL, score="compressed", dim=16)):
        f = twin.importance(q[:5], k, options, (w, w))
        np.testing.assert_array_equal(f, f[:, np.arange(40) % 7])


# --- goldens and mutations


@pytest.mark.parametrize("case", ESA, ids=lambda case: case.name)
def test_float32_cannot_flip_a_choice(case, monkeypatch):
    assert_float32_chooses_alike(case, twin, "relative_scores", monkeypatch)


MUTATED = ["esa-mha", "esa-mqa", "esa-compressed"]
POOLED = [name for name in MUTATED if name != "esa-mqa"]  # eps > 0


def test_unclipped_proximity_is_noticed(monkeypatch):
    # Wrapping round, or reaching the neighbours of the middle, as with a pool over all keys.
    monkeypatch.setattr(
        twin,
        "smoothed",
        lambda s, eps: np.max([np.roll(s, shift) for shift in range(-eps, eps + 1)], axis=0),
    )
    assert not unnoticed(ESA, *POOLED)


def test_proximity_that_reaches_the_initial_and_local_tokens_is_noticed(monkeypatch):
    original = twin.chosen_tokens
    scene = {}

    def parts(begin, options):
        scene["parts"] = max(0, begin - options.n_local)
        return original_parts(begin, options)

    def wide(q_far, k_middle, options, projections):
        # Pools over all keys before the chunk, then takes the middle.
        if len(k_middle) <= options.k:
            return original(q_far, k_middle, options, projections)
        end = scene["parts"]
        init = end - len(k_middle)
        f = twin.importance(q_far, scene["k"][: end + options.n_local], options, projections)
        s = (f - f[:, init:end].max(axis=1, keepdims=True)).max(axis=0)
        s_smooth = twin.smoothed(s, options.eps)[init:end]
        return sorted(twin.ranking(s[init:end], s_smooth)[: options.k]), np.inf

    original_parts, original_esa = twin.parts_of, twin.esa
    monkeypatch.setattr(twin, "parts_of", parts)
    monkeypatch.setattr(twin, "chosen_tokens", wide)

    def with_keys(case, q, k, v):
        scene["k"] = k
        options = Options(**case.options(), base=case.base)
        return original_esa(q, k, v, options, case.n_prefill, case.calls, projections_of(case))

    for name in POOLED:
        assert differs_from_golden(replace(case_named(ESA, name), twin=with_keys), GOLDEN)


def test_missing_proximity_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "smoothed", lambda s, eps: s)
    assert not unnoticed(ESA, *POOLED)


def test_scores_that_are_not_relative_are_noticed(monkeypatch):
    monkeypatch.setattr(twin, "relative_scores", lambda f: f.max(axis=0))
    assert not unnoticed(ESA, *MUTATED)


def test_a_mean_over_the_chunk_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "relative_scores", lambda f: f.mean(axis=0))
    assert not unnoticed(ESA, *MUTATED)


def test_unrotated_queries_in_the_score_are_noticed(monkeypatch):
    original = twin.importance

    def unrotated(q_far, k, options, projections):
        theta = frequencies(q_far.shape[-1], options.base)
        return original(rotate(q_far, -options.n_local, theta), k, options, projections)

    monkeypatch.setattr(twin, "importance", unrotated)
    assert not unnoticed(ESA, *MUTATED)


def test_a_far_distance_off_by_one_is_noticed(monkeypatch):
    original = twin.positions_of

    def nearer(i, init_end, middle_end, chosen, options):
        table = original(i, init_end, middle_end, chosen, options)
        return {j: position + (j < middle_end) for j, position in table.items()}

    monkeypatch.setattr(twin, "positions_of", nearer)
    assert not unnoticed(ESA, *MUTATED)


def test_a_local_part_that_slides_inside_the_chunk_is_noticed(monkeypatch):
    original = twin.positions_of

    def sliding(i, init_end, middle_end, chosen, options):
        table = original(i, init_end, middle_end, chosen, options)
        return {j: p for j, p in table.items() if j < middle_end or i - j <= options.n_local}

    monkeypatch.setattr(twin, "positions_of", sliding)
    assert not unnoticed(ESA, *MUTATED)


def test_a_middle_that_begins_one_token_late_is_noticed(monkeypatch):
    monkeypatch.setattr(
        twin,
        "parts_of",
        lambda begin, options: (
            min(options.n_init, max(0, begin - options.n_local - 1)),
            max(0, begin - options.n_local - 1),
        ),
    )
    assert not unnoticed(ESA, *MUTATED)


def test_ties_by_index_alone_are_noticed(monkeypatch):
    monkeypatch.setattr(
        twin, "ranking", lambda s, s_smooth: sorted(range(len(s)), key=lambda m: (-s_smooth[m], m))
    )
    assert not unnoticed(ESA, *POOLED)


def test_ties_by_the_higher_index_are_noticed(monkeypatch):
    monkeypatch.setattr(
        twin, "ranking", lambda s, s_smooth: sorted(range(len(s)), key=lambda m: (-s_smooth[m], -s[m], -m))
    )
    assert not unnoticed(ESA, "esa-tie-zero-keys", "esa-tie-repeated-keys", "esa-fewer-than-best")


def test_swapped_projections_are_noticed():
    case = case_named(ESA, "esa-compressed")

    def swapped(case, q, k, v):
        options = Options(**case.options(), base=case.base)
        return esa(q, k, v, options, case.n_prefill, case.calls, projections_of(case)[::-1])

    assert differs_from_golden(replace(case, twin=swapped), GOLDEN)


def test_the_sum_and_the_largest_of_the_heads_are_told_apart():
    for name, other in (("esa-gqa", "individual"), ("esa-individual", "sum")):
        case = case_named(ESA, name)
        spec = case.spec.rsplit("=", 1)[0] + "=" + other
        assert differs_from_golden(replace(case, spec=spec), GOLDEN)


def test_other_calls_are_noticed():
    case = case_named(ESA, "esa-calls")
    assert differs_from_golden(replace(case, calls=[sum(case.calls)]), GOLDEN)
