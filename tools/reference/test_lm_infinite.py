"""The naive LM-Infinite twin against what its definition implies, and mutations that must not pass."""

import numpy as np
import pytest

import lm_infinite as twin
import streaming_llm
from cases_part1 import LM_INFINITE
from checks import (
    assert_equals_full,
    assert_outputs_follow_from_pairs,
    assert_rows_know_nothing_later,
    keys_of,
    logit,
    random_inputs,
    unnoticed,
)
from lm_infinite import Options, lm_infinite

OFFICIAL = Options(sinks=4, local=9, limit=9)
INFLLM = Options(sinks=4, local=9, form="infllm")


@pytest.mark.parametrize("options,far", [(OFFICIAL, 9), (INFLLM, 8), (Options(4, 9, limit=5), 5)])
def test_pairs_are_those_of_a_lambda_shaped_mask(options, far):
    n, at = 50, np.arange(50)
    true = at[:, None] - at[None]
    local = (true >= 0) & (true < 9)
    sinks = (true >= 9) & (at[None] < 4)
    result = lm_infinite(*random_inputs(n), options)
    for i in range(n):
        table = np.where(local[i], true[i], np.where(sinks[i], far, -1))
        assert keys_of(result, i) == [(j, table[j]) for j in range(n) if table[j] >= 0]


def test_three_conventions_for_sinks():
    inputs = random_inputs(30)
    stream = streaming_llm.Options(start=4, recent=9, form="chunk-safe")
    for sink in range(4):
        assert (sink, 9) in keys_of(lm_infinite(*inputs, OFFICIAL), 29)
        assert (sink, 8) in keys_of(lm_infinite(*inputs, INFLLM), 29)
        assert (sink, 12 - sink) in streaming_llm.attended(29, stream)


@pytest.mark.parametrize("heads,kv_heads,dim", [(2, 2, 8), (6, 2, 8), (4, 1, 12)])
def test_equals_full_within_the_local_branch(heads, kv_heads, dim):
    q, k, v = random_inputs(31, heads, kv_heads, dim)
    for options in (Options(4, 31, 31), Options(4, 31, 31, top_k=2, top_k_at=5), Options(4, 40, 6)):
        assert_equals_full(lm_infinite(q, k, v, options), q, k, v)
    assert_equals_full(lm_infinite(q, k, v, Options(4, 31, form="infllm")), q, k, v)
    # The first sink leaves the local branch at the distance it had, but for InfLLM's convention.
    assert_equals_full(lm_infinite(q, k, v, OFFICIAL), q, k, v, slice(0, 10))
    assert_equals_full(lm_infinite(q, k, v, INFLLM), q, k, v, slice(0, 9))
    assert keys_of(lm_infinite(q, k, v, INFLLM), 9)[0] == (0, 8)


def test_a_limit_above_the_local_branch_is_cut_to_the_keys_of_the_call():
    inputs, options = random_inputs(40), Options(sinks=2, local=5, limit=20)
    whole = lm_infinite(*inputs, options)
    calls = lm_infinite(*inputs, options, [12, 3])
    for i in range(5, 40):
        end = 12 if i < 12 else 15 if i < 15 else i + 1
        assert keys_of(whole, i)[0] == (0, 20)
        assert keys_of(calls, i)[0] == (0, min(20, end - 1))
    for limit in (3, 5):  # never longer than the first distance beyond the branch: calls make no difference
        options = Options(sinks=2, local=5, limit=limit)
        a, b = lm_infinite(*inputs, options), lm_infinite(*inputs, options, [12, 3])
        np.testing.assert_array_equal(a.out, b.out)


@pytest.mark.parametrize("options", [OFFICIAL, INFLLM, Options(4, 9, 5)])
def test_without_top_k_prefill_row_is_decode_step(options):
    inputs = random_inputs(41)
    whole = lm_infinite(*inputs, options)
    for calls in ([], [1], [17, 4], [40]):
        np.testing.assert_array_equal(lm_infinite(*inputs, options, calls).out, whole.out)
    assert_rows_know_nothing_later(lambda *x: lm_infinite(*x, options), *inputs, (1, 8, 9, 10, 13, 30))


TOP_K = Options(sinks=4, local=9, limit=9, top_k=5, top_k_at=6)


def chosen_by(result, i, head=0, options=TOP_K):
    return [(j, d) for j, d in keys_of(result, i, head) if options.sinks <= j <= i - options.local]


def test_only_the_last_row_of_a_call_chooses():
    q, k, v = random_inputs(60, heads=6, kv_heads=2)
    calls = [30, 12, 1, 7]
    result = lm_infinite(q, k, v, TOP_K, calls)
    last = {29, 41, 42, 49} | set(range(50, 60))
    for i in range(60):
        for head in range(6):
            assert len(chosen_by(result, i, head)) == (5 if i in last else 0)
            assert all(d == 6 for _, d in chosen_by(result, i, head))
    assert any(chosen_by(result, 59, 0) != chosen_by(result, 59, head) for head in range(1, 6))
    assert_outputs_follow_from_pairs(result, q, k, v)


def test_the_chosen_have_the_largest_logits_at_the_inserted_distance():
    q, k, v = random_inputs(60, heads=6, kv_heads=2)
    result = lm_infinite(q, k, v, TOP_K, [1])
    for i in (30, 45, 59):
        for head in range(6):
            logits = {j: logit(q[i, head], k[j, head // 3], 6) for j in range(4, i - 8)}
            taken = [j for j, _ in chosen_by(result, i, head)]
            bound = min(logits[j] for j in taken)
            left = max(value for j, value in logits.items() if j not in taken)
            assert bound > left
            largest = max(abs(value) for value in logits.values())
            assert np.isclose(result.rows[i][head].gap, (bound - left) / largest)


def test_there_must_be_enough_in_the_middle():
    result = lm_infinite(*random_inputs(40), TOP_K, [])
    for i in range(40):
        middle = i + 1 - 4 - 9
        assert len(chosen_by(result, i)) == (5 if middle >= 5 else 0)
    assert chosen_by(result, 17) == [(j, 6) for j in range(4, 9)] and np.isinf(result.rows[17][0].gap)


def test_layers_before_the_first_do_not_choose():
    inputs = random_inputs(40)
    options = Options(4, 9, 9, top_k=5, top_k_from=4, top_k_at=6)
    plain = lm_infinite(*inputs, OFFICIAL)
    for layer, chooses in ((0, False), (3, False), (4, True), (11, True)):
        result = lm_infinite(*inputs, options, [20], layer)
        assert (result.out[39] != plain.out[39]).any() == chooses


def test_top_k_of_everything_is_every_key():
    q, k, v = random_inputs(40)
    options = Options(4, 9, 9, top_k=27, top_k_at=6)  # 40 - 4 - 9
    result = lm_infinite(q, k, v, options)
    assert [j for j, _ in keys_of(result, 39)] == list(range(40))


def test_ties_go_to_the_lower_index():
    assert twin.choose(np.array([1.0, 3.0, 1.0, 1.0]), 2) == ([0, 1], 0.0)
    assert twin.choose(np.zeros(5), 3) == ([0, 1, 2], 0.0)
    assert twin.choose(np.array([0.0, -0.0, 0.0]), 1)[0] == [0]
    q, k, v = random_inputs(40)
    result = lm_infinite(q, 0 * k, v, TOP_K)
    assert [j for j, _ in chosen_by(result, 39)] == [4, 5, 6, 7, 8] and result.rows[39][0].gap == 0


# --- mutations

OFFICIALS = ("lm-infinite-mha", "lm-infinite-limit-below-local")
INFLLMS = ("lm-infinite-infllm-gqa",)
CLAMPED = ("lm-infinite-limit-above-local-decoded",)
TOP_KS = ("lm-infinite-top-k-gqa", "lm-infinite-top-k-decoded", "lm-infinite-top-k-infllm")


def test_dropped_sinks_are_noticed(monkeypatch):
    original = twin.local_and_sinks
    monkeypatch.setattr(
        twin, "local_and_sinks", lambda i, end, o: [x for x in original(i, end, o) if i - x[0] < o.local]
    )
    assert unnoticed(LM_INFINITE, *OFFICIALS, *INFLLMS, *CLAMPED, *TOP_KS) == []


@pytest.mark.parametrize("off", [-1, 1])
def test_another_distance_of_the_sinks_is_noticed(off, monkeypatch):
    original = twin.sink_distance
    monkeypatch.setattr(twin, "sink_distance", lambda end, o: original(end, o) + off)
    assert unnoticed(LM_INFINITE, *OFFICIALS, *INFLLMS, *CLAMPED) == []


def test_a_limit_cut_by_the_row_and_not_by_the_call_is_noticed(monkeypatch):
    original = twin.local_and_sinks
    monkeypatch.setattr(twin, "local_and_sinks", lambda i, end, o: original(i, i + 1, o))
    assert unnoticed(LM_INFINITE, *CLAMPED) == []
    assert unnoticed(LM_INFINITE, *OFFICIALS, *INFLLMS) == [*OFFICIALS, *INFLLMS]


@pytest.mark.parametrize("off", [-1, 1])
def test_a_local_branch_off_by_one_is_noticed(off, monkeypatch):
    original = twin.local_and_sinks

    def mutated(i, end, o):
        form = Options(o.sinks, o.local + off, o.limit, form=o.form)
        return [(j, d if d == i - j else twin.sink_distance(end, o)) for j, d in original(i, end, form)]

    monkeypatch.setattr(twin, "local_and_sinks", mutated)
    assert unnoticed(LM_INFINITE, *OFFICIALS, *INFLLMS, *CLAMPED) == []


@pytest.mark.parametrize(
    "mutation",
    [
        lambda i, end, layer, o: range(o.sinks, max(i + 1 - o.local, o.sinks)),  # every row of a prefill
        lambda i, end, layer, o: range(0),  # none
        lambda i, end, layer, o: range(o.sinks, end - o.local - 1) if i == end - 1 else range(0),
        lambda i, end, layer, o: range(o.sinks + 1, end - o.local) if i == end - 1 else range(0),
    ],
)
def test_another_middle_is_noticed(mutation, monkeypatch):
    monkeypatch.setattr(twin, "middle_of", mutation)
    assert unnoticed(LM_INFINITE, *TOP_KS) == []


def test_another_threshold_of_the_middle_is_noticed(monkeypatch):
    original = twin.middle_of
    at_least = lambda count: lambda *a: m if len(m := original(*a)) >= count(a[-1]) else range(0)
    monkeypatch.setattr(twin, "middle_of", at_least(lambda o: o.top_k + 1))
    assert unnoticed(LM_INFINITE, "lm-infinite-top-k-gqa") == []


def test_choosing_in_every_layer_is_noticed(monkeypatch):
    original = twin.middle_of
    monkeypatch.setattr(twin, "middle_of", lambda i, end, layer, o: original(i, end, o.top_k_from, o))
    assert unnoticed(LM_INFINITE, "lm-infinite-top-k-mha-layer-before") == []


def test_choosing_among_ties_by_the_higher_index_is_noticed(monkeypatch):
    def mutated(scores, count):
        return sorted(sorted(range(len(scores)), key=lambda at: (-scores[at], -at))[:count]), np.inf

    monkeypatch.setattr(twin, "choose", mutated)
    assert unnoticed(LM_INFINITE, "lm-infinite-tie-zero-keys", "lm-infinite-tie-repeated-keys") == []
    assert unnoticed(LM_INFINITE, *TOP_KS) == [*TOP_KS]
