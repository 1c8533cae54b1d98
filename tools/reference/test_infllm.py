"""The naive InfLLM twin against closed forms, a second derivation of its choices, and mutations that must not
pass."""

from collections import Counter

import numpy as np
import pytest

import infllm as twin
from cases_part1 import INFLLM
from checks import (
    assert_equals_full,
    assert_outputs_follow_from_pairs,
    assert_rows_know_nothing_later,
    keys_of,
    logit,
    random_inputs,
    unnoticed,
)
from common import frequencies, rotate
from full import full
from infllm import Options, exec_blocks, infllm

SMALL = dict(n_init=3, n_local=12, block=4, top_k=2, representatives=2, exec_block=7)


def options(**changed):
    return Options(**(SMALL | changed))


def absorbed_before(t0, o):
    """(initial tokens, blocks) when an exec block begins at t0, in closed form."""
    init = min(max(t0 - o.n_local, 0), o.n_init)
    return init, max(t0 - o.n_local - init, 0) // o.block


def far_of(result, i, o, head=0):
    """The keys that count as far ones for this query, with repeats: what is left without the local ones."""
    rest = Counter(keys_of(result, i, head)) - Counter(
        (j, i - j) for j in range(max(i - o.n_local + 1, 0), i + 1)
    )
    assert all(d == o.n_local - 1 for _, d in rest)
    return sorted(j for j, _ in rest.elements())


def test_exec_blocks_are_cut_inside_each_call():
    o = options(exec_block=5)
    assert exec_blocks(14, [12], o) == [(0, 5), (5, 10), (10, 12), (12, 13), (13, 14)]
    assert exec_blocks(12, [3, 8, 1], o) == [(0, 3), (3, 8), (8, 11), (11, 12)]
    assert exec_blocks(3, [], o) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("heads,kv_heads,dim", [(2, 2, 8), (6, 2, 8), (4, 1, 12)])
@pytest.mark.parametrize("compat", [False, True])
def test_equals_full_within_the_local_window(heads, kv_heads, dim, compat):
    q, k, v = random_inputs(31, heads, kv_heads, dim)
    for calls in ([31], [20, 1], [3, 9, 19], []):
        assert_equals_full(infllm(q, k, v, options(n_local=31, compat=compat), calls), q, k, v)


def test_early_rows_of_a_longer_text_equal_full_but_under_compat_where_an_exec_block_straddles():
    q, k, v = random_inputs(40)
    for calls in ([40], [10, 1], [12, 12], []):
        assert_equals_full(infllm(q, k, v, options(), calls), q, k, v, slice(0, 12))
    straddling = infllm(q, k, v, options(compat=True), [40])  # [7, 14) holds 12
    assert_equals_full(straddling, q, k, v, slice(0, 7))
    different = np.abs(straddling.out - full(q, k, v).out).max(axis=(1, 2)) > 1e-4
    assert different[7:12].all()
    aligned = infllm(q, k, v, options(compat=True, exec_block=6), [40])
    assert_equals_full(aligned, q, k, v, slice(0, 12))


CALLS = [[90], [50, 1], [29, 30, 1], [13, 2, 40], []]


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("shape", [{}, dict(block=17, n_local=9), dict(n_init=0), dict(n_init=30)])
def test_far_keys_are_initial_tokens_chosen_blocks_and_what_has_left_the_window_since(calls, shape):
    o = options(**shape)
    result = infllm(*random_inputs(90), o, calls)
    for t0, t1 in exec_blocks(90, calls, o):
        n_init, n_blocks = absorbed_before(t0, o)
        absorbed = n_init + n_blocks * o.block
        chosen = set()
        for i in range(t0, t1):
            far = far_of(result, i, o)
            assert len(far) == len(set(far))
            assert [j for j in far if j < n_init] == list(range(n_init))
            rest = [j for j in far if j >= absorbed]
            assert rest == list(range(absorbed, i - o.n_local + 1))
            blocks = Counter((j - n_init) // o.block for j in far if n_init <= j < absorbed)
            assert set(blocks.values()) <= {o.block} and len(blocks) == min(o.top_k, n_blocks)
            chosen.add(tuple(blocks))
        assert len(chosen) == 1  # one choice for the exec block


def test_in_decode_one_to_a_block_of_remainder_tokens_are_outside_the_window():
    o = options()
    result = infllm(*random_inputs(90), o, [40])
    sizes = {
        i: len([j for j in far_of(result, i, o) if j >= sum_of(absorbed_before(i, o), o)])
        for i in range(50, 90)
    }
    assert set(sizes.values()) == set(range(1, o.block + 1))


def sum_of(absorbed, o):
    return absorbed[0] + absorbed[1] * o.block


@pytest.mark.parametrize("calls", CALLS)
def test_no_key_is_missing_when_every_block_is_taken(calls):
    q, k, v = random_inputs(90)
    result = infllm(q, k, v, options(top_k=100), calls)
    for i in range(90):
        assert [j for j, _ in keys_of(result, i)] == list(range(i + 1))
        assert all(d == min(i - j, 11) for j, d in keys_of(result, i))


def test_compat_counts_twice_what_the_formula_says():
    o = options(compat=True, exec_block=11)
    for calls in ([90], [50, 1], [29, 30, 1], [13, 2, 40]):
        result = infllm(*random_inputs(90), o, calls)
        canonical = infllm(*random_inputs(90), options(exec_block=11), calls)
        for t0, t1 in exec_blocks(90, calls, o):
            absorbed = sum_of(absorbed_before(t0, o), o)
            for i in range(t0, t1):
                keys = [j for j, _ in keys_of(result, i)]
                twice = sorted(j for j, count in Counter(keys).items() if count == 2)
                first = max(absorbed, i - o.n_local + 1, 0)
                assert twice == list(range(first, max(t1 - o.n_local, first)))
                assert max(keys) == i and len(set(keys)) == len(keys) - len(twice)
                known = [j for j, _ in keys_of(canonical, i)]
                assert len(known) == len(set(known))


def test_a_full_exec_block_of_16_counts_15_less_the_offset_twice():
    q, k, v = random_inputs(120)
    for compat in (True, False):
        o = options(n_local=20, exec_block=16, compat=compat)
        result = infllm(q, k, v, o, [107, 1])
        for t0, t1 in ((80, 96), (96, 107), (107, 108), (115, 116)):
            for i in range(t0, t1):
                keys = keys_of(result, i)
                doubled = len(keys) - len({j for j, _ in keys})
                assert doubled == (t1 - t0 - 1 - (i - t0) if compat else 0)


def test_at_the_start_compat_counts_at_most_what_left_the_window():
    o = options(compat=True)
    result = infllm(*random_inputs(40), o, [40])
    for i in range(7, 14):  # [7, 14): the tokens 0 and 1 leave the window of 12
        keys = [j for j, _ in keys_of(result, i)]
        assert len(keys) - len(set(keys)) == min(2, max(0, 2 - max(i - 11, 0)))


@pytest.mark.parametrize("changed", [{}, dict(compat=True), dict(per_head=True), dict(representatives=4)])
def test_outputs(changed):
    q, k, v = random_inputs(64, heads=6, kv_heads=2)
    result = infllm(q, k, v, options(**changed), [37, 1])
    assert_outputs_follow_from_pairs(result, q, k, v, rows=range(0, 64, 3))


@pytest.mark.parametrize("changed", [{}, dict(compat=True), dict(per_head=True), dict(top_k=1, n_init=0)])
def test_choices_derived_again_from_what_was_attended(changed):
    # From the reported pairs alone: z by complex numbers, representatives by argsort, scores by matrices.
    o = options(**changed)
    n, n_heads, group, calls = 75, 4, 2, [41, 1]
    q, k, v = random_inputs(n, n_heads, 2)
    result = infllm(q, k, v, o, calls)
    theta = frequencies(8, 10000.0)
    z, vectors = np.zeros((n_heads, n)), np.zeros((0, n_heads, 8))
    decisions = 0
    for t0, t1 in exec_blocks(n, calls, o):
        n_init, n_blocks = absorbed_before(t0, o)
        for block in range(len(vectors), n_blocks):
            tokens = np.arange(n_init + block * o.block, n_init + (block + 1) * o.block)
            best = np.argsort(-z[:, tokens], axis=1)[:, : o.representatives]
            new = np.stack([k[tokens[best[h]], h // group].mean(axis=0) for h in range(n_heads)])
            vectors = np.concatenate([vectors, new[None]])
        if n_blocks > o.top_k:
            mean = np.stack([rotate(x, o.n_local - 1, theta) for x in q[t0:t1]]).mean(axis=0)
            scores = np.einsum("hd,bhd->hb", mean, vectors)
            if not o.per_head:
                scores[:] = scores.sum(axis=0)
            for head in range(n_heads):
                expected = sorted(np.argsort(-scores[head])[: o.top_k])
                far = [j for j in far_of(result, t0, o, head) if n_init <= j < n_init + n_blocks * o.block]
                assert sorted({(j - n_init) // o.block for j in far}) == expected
                decisions += 1
        for i in range(t0, t1):
            for head, row in enumerate(result.rows[i]):
                logits = [row.scale * logit(q[i, head], k[j, head // group], d) for j, d in row.keys]
                weights = np.exp(logits) / np.exp(logits).sum()
                seen = set()
                for (j, d), weight in zip(row.keys, weights):
                    if d == i - j and j not in seen:  # the local one of a doubled key
                        z[head, j] += weight
                        seen.add(j)
    assert decisions > 50


def test_the_exec_block_decides():
    inputs = random_inputs(80)
    whole = infllm(*inputs, options(), [80])
    same = infllm(*inputs, options(), [7, 14, 21, 28, 10])
    np.testing.assert_array_equal(whole.out, same.out)
    for calls in ([3, 77], [79], [5] * 16):
        assert np.abs(infllm(*inputs, options(), calls).out - whole.out).max() > 1e-3
    # The last token as a step of its own: the same where n - 1 is a multiple of the exec block.
    merged, apart = infllm(*inputs, options(), [78]), infllm(*inputs, options(), [77, 1])
    np.testing.assert_array_equal(merged.out, apart.out)
    for changed in (dict(), dict(compat=True)):
        merged, apart = (infllm(*inputs, options(**changed), calls) for calls in ([80], [79, 1]))
        assert (merged.rows[79][0].keys != apart.rows[79][0].keys) or changed == {}


def test_a_row_knows_nothing_after_its_exec_block():
    inputs = random_inputs(80)
    for compat in (False, True):
        o = options(compat=compat)
        assert_rows_know_nothing_later(lambda *x: infllm(*x, o), *inputs, (7, 14, 42, 70))


def test_every_head_for_itself():
    q, k, v = random_inputs(80, heads=4, kv_heads=2)
    one, own = (infllm(q, k, v, options(per_head=per_head), [60]) for per_head in (False, True))
    assert all(rows[0].keys == row.keys for rows in one.rows for row in rows)
    assert any(rows[0].keys != row.keys for rows in own.rows for row in rows)
    q, k, v = random_inputs(80, heads=1)
    one, own = (infllm(q, k, v, options(per_head=per_head), [60]) for per_head in (False, True))
    np.testing.assert_array_equal(one.out, own.out)


def test_ties_go_to_the_lower_index():
    assert twin.best(np.array([1.0, 3.0, 1.0, 1.0]), 2) == ([0, 1], 0.0)
    assert twin.best(np.array([0.0, -0.0, 0.0]), 1)[0] == [0]
    q, k, v = random_inputs(80)
    o = options(representatives=4)
    result = infllm(q, 0 * k, v, o, [60])
    assert [j for j in far_of(result, 79, o) if 3 <= j < 60] == list(range(3, 11))


# --- mutations

CHOOSING = ("infllm-mha", "infllm-uneven", "infllm-blocks-above-window")
PER_HEAD = ("infllm-per-head", "infllm-compat-per-head")
COMPAT = ("infllm-compat-mha", "infllm-compat-gqa", "infllm-compat-per-head")


def mutate_options(monkeypatch, **change):
    """The twin takes other options than the case says."""
    original = Options.__post_init__

    def mutated(self):
        original(self)
        for name, value in change.items():
            setattr(self, name, value(self))

    monkeypatch.setattr(Options, "__post_init__", mutated)


@pytest.mark.parametrize("off", [-1, 1])
def test_a_window_off_by_one_is_noticed(off, monkeypatch):
    mutate_options(monkeypatch, n_local=lambda o: o.n_local + off)
    assert unnoticed(INFLLM, *CHOOSING) == []


@pytest.mark.parametrize("name", ["n_init", "block", "exec_block"])
def test_an_option_off_by_one_is_noticed(name, monkeypatch):
    mutate_options(monkeypatch, **{name: lambda o: getattr(o, name) - 1})
    assert unnoticed(INFLLM, *CHOOSING) == []


def test_the_far_distance_of_the_paper_is_noticed(monkeypatch):
    def mutated(q, k, v, o, calls=None):
        result = infllm(q, k, v, o, calls)
        for i, rows in enumerate(result.rows):
            for row in rows:
                row.keys = [(j, o.n_local if j <= i - o.n_local else d) for j, d in row.keys]
        return result

    monkeypatch.setattr("cases_part1.infllm", mutated)
    assert unnoticed(INFLLM, *CHOOSING) == []


def test_a_forgotten_remainder_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "far_remainder", lambda *a: [])
    assert unnoticed(INFLLM, *CHOOSING, *COMPAT) == []


def test_one_mask_for_the_other_is_noticed(monkeypatch):
    mutate_options(monkeypatch, compat=lambda o: not o.compat)
    assert unnoticed(INFLLM, *CHOOSING, *COMPAT) == []


def test_one_choice_for_the_other_is_noticed(monkeypatch):
    mutate_options(monkeypatch, per_head=lambda o: not o.per_head)
    assert unnoticed(INFLLM, "infllm-mha", "infllm-uneven", *PER_HEAD) == []


def test_other_representatives_are_noticed(monkeypatch):
    original = twin.block_vector

    def least(tokens, k, memory, o):
        return original(tokens, k, twin.Memory([], [], [], [], -memory.z), o)

    monkeypatch.setattr(twin, "block_vector", least)
    assert unnoticed(INFLLM, *CHOOSING) == []


def test_representatives_of_every_head_by_the_first_ones_score_are_noticed(monkeypatch):
    original = twin.block_vector

    def shared(tokens, k, memory, o):
        return original(tokens, k, twin.Memory([], [], [], [], memory.z * 0 + memory.z[0]), o)

    monkeypatch.setattr(twin, "block_vector", shared)
    assert unnoticed(INFLLM, *CHOOSING) == []


def test_an_unrotated_query_in_the_choice_is_noticed(monkeypatch):
    original = twin.choose_blocks
    monkeypatch.setattr(twin, "choose_blocks", lambda q, memory, o, theta: original(q, memory, o, 0 * theta))
    assert unnoticed(INFLLM, *CHOOSING) == []


def test_the_last_query_for_the_mean_is_noticed(monkeypatch):
    original = twin.choose_blocks
    monkeypatch.setattr(twin, "choose_blocks", lambda q, *rest: original(q[-1:], *rest))
    assert unnoticed(INFLLM, *CHOOSING) == []


def test_exec_blocks_that_run_on_over_calls_are_noticed(monkeypatch):
    original = twin.exec_blocks
    monkeypatch.setattr(twin, "exec_blocks", lambda n, calls, o: original(n, [sum(calls)], o))
    assert unnoticed(INFLLM, "infllm-mha", "infllm-gqa", "infllm-uneven") == []


def test_choosing_among_ties_by_the_higher_index_is_noticed(monkeypatch):
    def mutated(scores, count):
        return sorted(sorted(range(len(scores)), key=lambda at: (-scores[at], -at))[:count]), np.inf

    monkeypatch.setattr(twin, "best", mutated)
    assert unnoticed(INFLLM, "infllm-tie-zero-keys", "infllm-tie-repeated-keys") == []
    assert unnoticed(INFLLM, *CHOOSING) == [*CHOOSING]
