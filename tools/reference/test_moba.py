"""The naive MoBA twin against what its definition implies, and against mutations that must not pass."""

from dataclasses import replace

import numpy as np
import pytest

import moba as twin
from cases_part2 import MOBA
from checks import GOLDEN, assert_outputs_follow_from_pairs, random_inputs, unnoticed
from choices import assert_float32_chooses_alike, case_named, repeat_heads
from common import frequencies, rotate
from full import full
from golden import differs_from_golden
from moba import Options, moba

GATED = Options(chunk=4, top_k=3, decode="gated")


def blocks_of(row, chunk):
    return sorted({j // chunk for j, _ in row.keys})


# --- the definition


def test_a_block_scores_the_mean_of_its_logits():
    q, k, _ = random_inputs(8)
    assert np.isclose(twin.gate(q[0, 0], k[:4, 0]), (k[:4, 0] @ q[0, 0]).mean())


@pytest.mark.parametrize("heads,kv_heads,dim", [(2, 2, 8), (6, 2, 8), (4, 1, 12)])
def test_equals_full_attention_while_top_k_covers_all_blocks(heads, kv_heads, dim):
    q, k, v = random_inputs(31, heads, kv_heads, dim)
    dense = full(q, k, v).out
    covering = moba(q, k, v, replace(GATED, top_k=8), n_prefill=20)
    np.testing.assert_allclose(covering.out, dense, rtol=1e-12, atol=1e-12)
    result = moba(q, k, v, GATED, n_prefill=31)
    np.testing.assert_allclose(result.out[:12], dense[:12], rtol=1e-12, atol=1e-12)
    assert all(len(row.keys) < i + 1 for i in range(12, 31) for row in result.rows[i])


def test_decode_is_full_attention_or_gated_as_prefill():
    q, k, v = random_inputs(50)
    dense = full(q, k, v).out
    prefill = moba(q, k, v, GATED, n_prefill=50)
    np.testing.assert_array_equal(moba(q, k, v, GATED, n_prefill=0).out, prefill.out)
    result = moba(q, k, v, replace(GATED, decode="full"), n_prefill=33)
    np.testing.assert_array_equal(result.out[:33], prefill.out[:33])
    np.testing.assert_allclose(result.out[33:], dense[33:], rtol=1e-12, atol=1e-12)


def test_the_own_block_is_always_seen_and_counts():
    q, k, v = random_inputs(50, heads=6, kv_heads=2)
    for i, rows in enumerate(moba(q, k, v, GATED, n_prefill=50).rows):
        for row in rows:
            blocks = blocks_of(row, 4)
            assert len(blocks) == min(3, i // 4 + 1) and blocks[-1] == i // 4
            assert row.keys[-1] == (i, 0)
            assert [j for j, _ in row.keys] == [j for b in blocks for j in range(4 * b, 4 * b + 4) if j <= i]


def test_distances_are_true_and_one_softmax_runs_over_all():
    q, k, v = random_inputs(50, heads=6, kv_heads=2)
    result = moba(q, k, v, GATED, n_prefill=50)
    for i, rows in enumerate(result.rows):
        for row in rows:
            assert all(distance == i - j for j, distance in row.keys)
    assert_outputs_follow_from_pairs(result, q, k, v)


def test_a_row_depends_on_its_past_alone():
    q, k, v = random_inputs(50)
    whole = moba(q, k, v, GATED, n_prefill=50)
    for n in (1, 3, 4, 5, 12, 13, 30):
        np.testing.assert_array_equal(moba(q[:n], k[:n], v[:n], GATED, n).out, whole.out[:n])


def test_the_means_are_those_of_rotated_keys():
    # Two blocks of equal keys (1, 0): the mean of the older one, turned further, is as long, and the query's
    # angle decides between them.
    theta = frequencies(2, 10000.0)
    k = np.tile([1.0, 0.0], (12, 1))[:, None]
    means = [rotate(k[4 * b : 4 * b + 4, 0], np.arange(4 * b, 4 * b + 4), theta).mean(axis=0) for b in (0, 1)]
    options = Options(chunk=4, top_k=2, decode="gated")
    for nearest in (0, 1):
        q = np.tile(rotate(means[nearest], -9, theta), (10, 1))[:, None]
        row = moba(q, k[:10], k[:10], options, n_prefill=10).rows[9][0]
        assert blocks_of(row, 4) == [nearest, 2]


def test_heads_that_share_keys_choose_for_themselves():
    q, k, v = random_inputs(50, heads=6, kv_heads=2)
    grouped = moba(q, k, v, GATED, n_prefill=50)
    np.testing.assert_array_equal(grouped.out, moba(*repeat_heads(q, k, v), GATED, 50).out)
    assert any(rows[0].keys != rows[1].keys for rows in grouped.rows)


def test_ties_go_to_the_lower_block():
    assert twin.best({4: 1.0, 2: 1.0, 9: 3.0, 1: 0.5}, 2) == ([9, 2], 0.0)
    q, k, v = random_inputs(40)
    result = moba(q, np.zeros_like(k), v, GATED, n_prefill=40)
    assert blocks_of(result.rows[39][0], 4) == [0, 1, 9]


# --- goldens and mutations


# The widths of the other gaps are in the manifest, and test_golden.py looks at them.
@pytest.mark.parametrize("case", [c for c in MOBA if c.inputs != "plain"], ids=lambda case: case.name)
def test_float32_cannot_flip_a_choice(case, monkeypatch):
    assert_float32_chooses_alike(case, twin, "best", monkeypatch)


MUTATED = ["moba-mha", "moba-gqa-gated", "moba-wide"]


def test_an_own_block_that_must_compete_is_noticed(monkeypatch):
    def competing(q_rotated, k_rotated, i, options):
        chunk = options.chunk
        scores = {
            block: twin.gate(q_rotated, k_rotated[block * chunk : min((block + 1) * chunk, i + 1)])
            for block in range(i // chunk + 1)
        }
        taken, gap = twin.best(scores, options.top_k)
        return sorted(taken), gap

    monkeypatch.setattr(twin, "chosen_blocks", competing)
    assert not unnoticed(MOBA, *MUTATED)


def test_an_own_block_that_does_not_count_is_noticed(monkeypatch):
    original = twin.best
    monkeypatch.setattr(twin, "best", lambda scores, count: original(scores, count + 1))
    assert not unnoticed(MOBA, *MUTATED, "moba-own-block-alone")


def test_means_of_unrotated_keys_are_noticed(monkeypatch):
    original = twin.chosen_blocks

    def unrotated(q_rotated, k_rotated, i, options):
        theta = frequencies(len(q_rotated), options.base)
        return original(q_rotated, rotate(k_rotated, -np.arange(len(k_rotated)), theta), i, options)

    monkeypatch.setattr(twin, "chosen_blocks", unrotated)
    assert not unnoticed(MOBA, *MUTATED)


def test_an_unrotated_query_is_noticed(monkeypatch):
    original = twin.chosen_blocks

    def unrotated(q_rotated, k_rotated, i, options):
        theta = frequencies(len(q_rotated), options.base)
        return original(rotate(q_rotated, -i, theta), k_rotated, i, options)

    monkeypatch.setattr(twin, "chosen_blocks", unrotated)
    assert not unnoticed(MOBA, *MUTATED)


def test_the_best_product_in_place_of_the_mean_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "gate", lambda q, keys: float((keys @ q).max()))
    assert not unnoticed(MOBA, *MUTATED)


def test_a_later_token_that_leaks_in_is_noticed(monkeypatch):
    monkeypatch.setattr(
        twin,
        "tokens_of",
        lambda blocks, i, options: [
            j for b in blocks for j in range(b * options.chunk, (b + 1) * options.chunk) if j <= max(i, 1)
        ],
    )
    assert not unnoticed(MOBA, *MUTATED)


def test_choosing_among_ties_by_the_higher_block_is_noticed(monkeypatch):
    def higher(scores, count):
        return sorted(scores, key=lambda block: (-scores[block], -block))[:count], np.inf

    monkeypatch.setattr(twin, "best", higher)
    assert not unnoticed(MOBA, "moba-tie-zero-keys", "moba-tie-some-zero-keys")


def test_the_phases_are_told_apart():
    for name, decode in (("moba-mha", "gated"), ("moba-mqa", "gated")):
        case = case_named(MOBA, name)
        assert differs_from_golden(replace(case, spec=case.spec.replace("full", decode)), GOLDEN)
    case = case_named(MOBA, "moba-gqa-gated")
    assert differs_from_golden(
        replace(case, spec=case.spec.replace("gated", "full"), n_prefill=case.n - 20), GOLDEN
    )
