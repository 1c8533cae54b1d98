"""The naive Landmark twin against what its definition implies, and against mutations that must not pass."""

from dataclasses import replace

import numpy as np
import pytest

import landmark as twin
from cases_part2 import LANDMARK
from checks import GOLDEN, random_inputs, unnoticed
from choices import assert_float32_chooses_alike, case_named, repeat_heads, sets_of
from common import frequencies, rotate, softmax
from full import full
from golden import differs_from_golden
from landmark import Options, landmark

SMALL = Options(trained_window=32, block=4, top_k=3)  # windows of 16 tokens


def landmarks(n, block=4):
    return range(block - 1, n, block)


def run(inputs, options=SMALL, **rest):
    return landmark(*inputs, options, landmarks(len(inputs[0]), options.block), **rest)


# --- the definition


def test_chosen_blocks_take_the_documented_slots():
    # Ten blocks, three chosen.
    assert twin.slots_of([1, 2, 9], 10, 3) == [0, 1, 3]
    assert twin.slots_of([7, 8, 9], 10, 3) == [1, 2, 3]
    assert twin.slots_of([0, 1, 2], 10, 3) == [0, 1, 2]
    assert [twin.competing_slot(b, 10, 3) for b in range(10)] == [0] * 7 + [1, 2, 3]
    assert [twin.competing_slot(b, 3, 3) for b in range(3)] == [1, 2, 3]


def test_the_window_leaves_room_for_the_slots():
    assert Options(trained_window=512, block=51, top_k=5).window == 204
    assert SMALL.window == 16
    assert twin.windows_of(40, 38, [38], SMALL) == [(0, 16), (16, 32), (32, 38), (38, 39), (39, 40)]
    # A window that begins inside a block ends with it.
    assert twin.windows_of(30, 30, [6, 1, 23], SMALL) == [(0, 6), (6, 7), (7, 8), (8, 24), (24, 30)]


def test_two_groups_of_the_softmax_by_hand():
    own, block = np.log([1.0, 2.0]), np.log([1.0, 3.0, 5.0])  # the block's landmark has logit log 5
    of_own, (of_block,) = twin.weights(own, [block])
    np.testing.assert_allclose(of_own, [1 / 8, 2 / 8])
    np.testing.assert_allclose(of_block, [5 / 8 * 1 / 4, 5 / 8 * 3 / 4, 0])


def test_weights_sum_to_one_and_a_block_weighs_as_its_landmark():
    q, k, _ = random_inputs(40)
    own, blocks = k[:3, 0] @ q[0, 0], [k[4 * b : 4 * b + 4, 0] @ q[0, 0] for b in range(1, 6)]
    of_own, of_blocks = twin.weights(own, blocks)
    assert np.isclose(of_own.sum() + sum(w.sum() for w in of_blocks), 1)
    of_landmarks = np.exp([logits[-1] for logits in blocks])
    for w, landmark_weight in zip(of_blocks, of_landmarks):
        assert np.isclose(w.sum(), landmark_weight / (of_landmarks.sum() + np.exp(own).sum()))
        assert w[-1] == 0


def test_grouped_softmax_is_a_merge_of_parts_with_given_logits():
    # What an executor of parts does: each block normalised, entering with its landmark's logit and mass 1.
    q, k, v = random_inputs(24)
    query, own = q[23, 0], range(20, 23)
    of_own, of_blocks = twin.weights(k[own, 0] @ query, [k[4 * b : 4 * b + 4, 0] @ query for b in range(5)])
    direct = of_own @ v[own, 0] + sum(w @ v[4 * b : 4 * b + 4, 0] for b, w in enumerate(of_blocks))
    parts = [(x, y) for x, y in zip(k[own, 0] @ query, v[own, 0])]
    for b in range(5):
        tokens = range(4 * b, 4 * b + 3)
        parts.append((k[4 * b + 3, 0] @ query, softmax(k[tokens, 0] @ query) @ v[tokens, 0]))
    merged = softmax(np.array([x for x, _ in parts])) @ np.array([y for _, y in parts])
    np.testing.assert_allclose(direct, merged, rtol=1e-12)


def grouped_by_counting_landmarks(logits, is_landmark, is_own, v):
    """The same softmax, told from a running count of the landmarks along the keys."""
    before = np.cumsum(is_landmark) - is_landmark
    group = np.where(is_own | is_landmark, -1, before)
    probability = np.zeros(len(logits))
    for g in set(group):
        probability[group == g] = softmax(logits[group == g])
    of_landmark = {before[x]: probability[x] for x in np.flatnonzero(is_landmark)}
    weight = [
        p if own else 0.0 if mark else p * of_landmark[count]
        for p, own, mark, count in zip(probability, is_own, is_landmark, before)
    ]
    return np.array(weight) @ v


def test_outputs_follow_from_the_pairs():
    inputs = q, k, v = random_inputs(60, heads=6, kv_heads=2)
    result, theta = run(inputs, n_prefill=45), frequencies(8, 10000.0)
    for i in (5, 15, 16, 19, 31, 40, 45, 52, 59):
        for head in range(6):
            keys = np.array([j for j, _ in result.rows[i][head].keys])
            distances = np.array([d for _, d in result.rows[i][head].keys])
            logits = rotate(k[keys, head // 3], -distances, theta) @ q[i, head] / np.sqrt(8)
            expected = grouped_by_counting_landmarks(
                logits, (keys % 4 == 3) & (keys // 4 != i // 4), keys // 4 == i // 4, v[keys, head // 3]
            )
            np.testing.assert_allclose(result.out[i, head], expected, rtol=1e-10, atol=1e-10)


def test_the_first_block_is_full_attention_but_for_its_landmark():
    inputs = random_inputs(12)
    result, dense = run(inputs), full(*inputs).out
    np.testing.assert_allclose(result.out[:3], dense[:3], rtol=1e-12, atol=1e-12)
    assert result.rows[3][0].keys == [(0, 3), (1, 2), (2, 1)]


def test_a_landmark_is_seen_by_later_blocks_and_never_by_its_own():
    result = run(random_inputs(60))
    for i, rows in enumerate(result.rows):
        for row in rows:
            keys = {j for j, _ in row.keys}
            assert (i // 4 * 4 + 3) not in keys and ((i, 0) in row.keys) == (i % 4 != 3)
            assert all(b * 4 + 3 in keys for b in {j // 4 for j in keys} - {i // 4})


def test_a_query_sees_its_window_and_as_many_cached_blocks_as_top_k():
    result = run(random_inputs(60), n_prefill=45)
    for i, rows in enumerate(result.rows):
        begin = i - i % 16 if i < 45 else i
        n_cached = begin // 4
        for row in rows:
            blocks = {j // 4 for j, _ in row.keys}
            assert set(range(n_cached, i // 4)) <= blocks
            assert len({b for b in blocks if b < n_cached}) == min(3, n_cached)


def test_retrieved_blocks_end_where_the_window_begins_and_nothing_is_farther_than_was_trained():
    inputs = random_inputs(120)
    for i, rows in enumerate(run(inputs, n_prefill=90).rows):
        begin = i - i % 16 if i < 90 else i - i % 4
        for row in rows:
            distance = dict(row.keys)
            assert 0 <= min(distance.values()) and max(distance.values()) < 32
            cached = sorted({j // 4 for j in distance if j < begin})

            first = [begin - (i - distance[4 * b]) for b in cached]  # how far before the window they begin
            assert all(x % 4 == 0 and 4 <= x <= 16 for x in first) and first == sorted(first, reverse=True)
            assert len(set(first)) == len(first)
            if cached and cached[-1] == begin // 4 - 1:
                assert first[-1] == 4  # the last cached block is where it truly is
            assert all(distance[j] == i - j for j in distance if j >= begin)


def test_while_all_blocks_are_retrieved_windows_make_no_difference():
    inputs = random_inputs(28)
    options = Options(trained_window=60, block=4, top_k=7)
    whole = run(inputs, options)
    for calls in ([4] * 7, [16, 12], [5, 2, 21], [1] * 28):
        other = run(inputs, options, calls=calls)
        np.testing.assert_allclose(other.out, whole.out, rtol=1e-12, atol=1e-12)
        assert sets_of(other) == sets_of(whole)


def test_with_windows_of_one_block_a_decoded_token_is_a_prefilled_one():
    inputs = random_inputs(50)
    options = Options(trained_window=12, block=4, top_k=1)
    whole = run(inputs, options)
    for n_prefill in (0, 1, 4, 23):
        np.testing.assert_array_equal(run(inputs, options, n_prefill=n_prefill).out, whole.out)


def test_results_depend_on_where_windows_begin():
    inputs = random_inputs(60)
    assert sets_of(run(inputs)) != sets_of(run(inputs, calls=[8, 52]))
    assert sets_of(run(inputs)) != sets_of(run(inputs, n_prefill=40))


def test_a_token_and_its_landmark_in_one_call_are_two_single_ones():
    inputs = random_inputs(48)
    singles = run(inputs, n_prefill=20)
    pairs = run(inputs, calls=[20] + [1, 1, 2] * 7)
    np.testing.assert_array_equal(singles.out, pairs.out)


def test_a_row_depends_on_its_past_alone():
    inputs = random_inputs(60)
    whole = run(inputs, n_prefill=45)
    for n in (1, 3, 4, 5, 16, 17, 33, 45, 50):
        part = run([x[:n] for x in inputs], n_prefill=min(n, 45))
        np.testing.assert_array_equal(part.out, whole.out[:n])


def test_landmarks_elsewhere_are_refused():
    with pytest.raises(AssertionError):
        landmark(*random_inputs(12), SMALL, [3, 6, 11])


def test_heads_that_share_keys_choose_for_themselves():
    inputs = random_inputs(60, heads=6, kv_heads=2)
    grouped = run(inputs)
    np.testing.assert_array_equal(grouped.out, run(repeat_heads(*inputs)).out)
    assert any(rows[0].keys != rows[1].keys for rows in grouped.rows)


def test_older_landmarks_tie_where_they_are_equal_and_the_lower_block_wins():
    # As in the first layer: a landmark's unrotated key is the same in every block.
    q, k, v = random_inputs(60)
    k[landmarks(60)] = k[3]
    older = 0
    for i, rows in enumerate(run((q, k, v), n_prefill=0).rows):
        n_cached = i // 4
        for row in rows:
            chosen = sorted({j // 4 for j, _ in row.keys} & set(range(n_cached - min(3, n_cached))))
            assert chosen == list(range(len(chosen)))
            older += len(chosen)
    assert older > 20


# --- goldens and mutations


# The widths of the other gaps are in the manifest, and test_golden.py looks at them.
@pytest.mark.parametrize("case", [c for c in LANDMARK if c.inputs != "plain"], ids=lambda case: case.name)
def test_float32_cannot_flip_a_choice(case, monkeypatch):
    assert_float32_chooses_alike(case, twin, "best", monkeypatch)


MUTATED = ["landmark-mha", "landmark-decode-alone"]


def test_a_slot_off_by_one_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "slots_of", lambda chosen, n_cached, k: [rank for rank in range(len(chosen))])
    assert not unnoticed(LANDMARK, *MUTATED)


def test_true_places_for_the_last_blocks_are_noticed(monkeypatch):
    monkeypatch.setattr(
        twin,
        "slots_of",
        lambda chosen, n_cached, k: [
            rank if b < n_cached - k else b - (n_cached - k) + 1 for rank, b in enumerate(chosen)
        ],
    )
    assert not unnoticed(LANDMARK, *MUTATED)


def test_scoring_at_true_positions_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "competing_slot", lambda block, n_cached, k: block - (n_cached - k) + 1)
    assert not unnoticed(LANDMARK, *MUTATED)


def test_scoring_all_in_slot_zero_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "competing_slot", lambda block, n_cached, k: 0)
    assert not unnoticed(LANDMARK, *MUTATED)


def test_a_missing_group_zero_is_noticed(monkeypatch):
    def one_softmax(logits_own, logits_blocks):
        ordinary = np.concatenate([logits_own] + [logits[:-1] for logits in logits_blocks])
        parts = np.split(
            softmax(ordinary), np.cumsum([len(logits_own)] + [len(x) - 1 for x in logits_blocks])
        )
        return parts[0], [np.append(part, 0.0) for part in parts[1:-1]]

    monkeypatch.setattr(twin, "weights", one_softmax)
    assert not unnoticed(LANDMARK, *MUTATED, "landmark-tie-repeated")


def test_landmarks_with_a_value_are_noticed(monkeypatch):
    def valued(logits_own, logits_blocks):
        probabilities = softmax(np.concatenate([logits_own, [logits[-1] for logits in logits_blocks]]))
        own = len(logits_own)
        return probabilities[:own], [
            p * softmax(logits) for p, logits in zip(probabilities[own:], logits_blocks)
        ]

    monkeypatch.setattr(twin, "weights", valued)
    assert not unnoticed(LANDMARK, *MUTATED)


def test_an_own_landmark_that_is_seen_is_noticed(monkeypatch):
    monkeypatch.setattr(twin, "own_tokens", lambda i, options: list(range(i - i % options.block, i + 1)))
    assert not unnoticed(LANDMARK, *MUTATED)


def test_a_window_of_another_length_is_noticed():
    for name in ("landmark-mha", "landmark-gqa-window-of-one-block"):
        case = case_named(LANDMARK, name)
        block = case.options()["block"]
        assert differs_from_golden(replace(case, trained_window=case.trained_window + block), GOLDEN)


def test_other_calls_are_noticed():
    case = case_named(LANDMARK, "landmark-mqa-calls")
    assert differs_from_golden(replace(case, calls=[sum(case.calls)]), GOLDEN)


def test_choosing_among_ties_by_the_higher_block_is_noticed(monkeypatch):
    def higher(scores, count):
        return sorted(scores, key=lambda block: (-scores[block], -block))[:count], np.inf

    monkeypatch.setattr(twin, "best", higher)
    assert not unnoticed(LANDMARK, "landmark-tie-repeated", "landmark-tie-zero-keys")
