"""The ablations of the LongHeads twin (the paper's Table 4 and the representations) against what they mean,
and against mutations that must not pass. test_longheads.py has the method itself."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import longheads as twin
from cases_part2 import LONGHEADS
from checks import GOLDEN, random_inputs, unnoticed
from choices import assert_float32_chooses_alike, case_named, sets_of
from common import frequencies, rotate
from full import full
from golden import differs_from_golden
from longheads import Options, draw, longheads

SMALL = dict(chunk=4, window=20, begin=20)  # five slots
RANDOM = ("random", "random-keep")


def run(inputs, n_prefill=None, layer=0, first_layer=None, **options):
    return longheads(*inputs, Options(**SMALL | options), n_prefill, layer, first_layer)


def chunks_of(result, begin=20):
    return [[row.chunks for row in rows] for rows in result.rows[begin:]]


# --- random choices


def test_a_draw_is_splitmix64_and_floyds_sampling():
    # By hand, in plain integers modulo 2^64.
    gamma, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def finalise(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    state = finalise((5 + 3 * gamma) & mask)  # seed 5, layer 2
    state = finalise((state + 8 * gamma) & mask)  # head 7
    state = finalise((state + 42 * gamma) & mask)  # token 41
    numbers = [finalise((state + t * gamma) & mask) for t in (1, 2, 3)]
    taken = {numbers[0] % 8}
    taken.add(8 if numbers[1] % 9 in taken else numbers[1] % 9)
    taken.add(9 if numbers[2] % 10 in taken else numbers[2] % 10)
    assert draw(range(11, 21), 3, 5, 2, 7, 41) == sorted(11 + index for index in taken)


def test_the_generator_is_the_published_one():
    # The first outputs of SplitMix64 from state 1234567, as its reference implementation gives them.
    outputs = [twin.finalise((1234567 + t * 0x9E3779B97F4A7C15) & twin.MASK) for t in (1, 2, 3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_draws_depend_on_every_part_of_their_key_and_take_all_where_there_are_no_more():
    drawn = {
        tuple(draw(range(40), 4, *key)) for key in ((0, 0, 0, 9), (1, 0, 0, 9), (0, 1, 0, 9), (0, 0, 1, 9))
    }
    assert len(drawn) == 4
    assert draw(range(5), 5, 0, 0, 0, 0) == draw(range(5), 9, 0, 0, 0, 0) == list(range(5))
    assert draw(range(5), 0, 0, 0, 0, 0) == draw(range(0), 3, 0, 0, 0, 0) == []


def test_every_subset_is_equally_likely():
    counts = {subset: 0 for subset in combinations(range(6), 3)}
    for token in range(4000):
        counts[tuple(draw(range(6), 3, 0, 1, 2, token))] += 1
    # 200 of each are expected; chi-square with 19 degrees of freedom is below 43.8 in 999 of 1000 cases.
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 43.8


def test_random_keeps_the_own_chunk_alone():
    result = run(random_inputs(200), choose="random")
    kept = []
    for i, row in ((i, row) for i in range(20, 200) for row in result.rows[i]):
        c = i // 4
        assert len(row.chunks) == 5 and row.chunks[-1] == c and row.chunks == sorted(set(row.chunks))
        kept.append((0 in row.chunks, c - 1 in row.chunks))
    expected = np.mean([4 / (i // 4) for i in range(20, 200) for _ in range(2)])
    assert np.allclose(np.mean(kept, axis=0), expected, atol=0.08)


def test_random_keep_keeps_the_first_and_the_previous_too():
    result = run(random_inputs(90), choose="random-keep")
    for i in range(20, 90):
        for row in result.rows[i]:
            assert len(row.chunks) == 5 and {0, i // 4 - 1, i // 4} <= set(row.chunks)
    assert len({tuple(row.chunks) for row in (rows[0] for rows in result.rows[84:])}) > 1


def test_random_choices_know_the_layer_the_head_and_the_token_and_not_the_text():
    inputs, other = random_inputs(90), random_inputs(90, seed=9)
    for choose in RANDOM:
        chunks = chunks_of(run(inputs, choose=choose))
        assert chunks == chunks_of(run(other, choose=choose))
        assert chunks != chunks_of(run(inputs, layer=1, choose=choose))
        assert chunks != chunks_of(run(inputs, choose=choose, seed=1))
        assert any(a != b for a, b in chunks)


# --- the other ablations


def test_last_k_takes_the_lowest_scores():
    inputs = random_inputs(60, heads=6, kv_heads=2)
    q, _, _ = inputs
    reps = twin.all_representations(*inputs, Options(**SMALL), frequencies(8, 10000.0))
    result = run(inputs, choose="last-k")
    for i in range(20, 60):
        for head, row in enumerate(result.rows[i]):
            c = i // 4
            lowest = sorted(range(1, c - 1), key=lambda x: q[i, head] @ reps[x, head])[:2]
            assert row.chunks == sorted({0, c - 1, c} | set(lowest))


def test_top_and_last_k_share_out_four_candidates():
    inputs = random_inputs(28)
    top, last = run(inputs), run(inputs, choose="last-k")
    for i in range(24, 28):
        for a, b in zip(top.rows[i], last.rows[i]):
            assert set(a.chunks) & set(b.chunks) == {0, 5, 6} and len(set(a.chunks) | set(b.chunks)) == 7


def test_ties_of_the_lowest_go_to_the_lower_index_too():
    assert twin.worst({4: 1.0, 2: 1.0, 9: 3.0, 1: 5.0}, 1) == ([2], 0.0)


@pytest.mark.parametrize("choose", ["top", "last-k", "random", "random-keep"])
def test_without_the_first_chunk_its_slot_goes_to_another(choose):
    inputs = random_inputs(90)
    result = run(inputs, choose=choose, first="off")
    np.testing.assert_array_equal(result.out[:20], run(inputs).out[:20])
    for i in range(24, 90):
        for row in result.rows[i]:
            assert 0 not in row.chunks and len(row.chunks) == 5 and row.chunks[-1] == i // 4
            assert choose == "random" or row.chunks[-2] == i // 4 - 1
            assert dict(row.keys)[4 * row.chunks[0]] == 4 * 4 + i % 4


@pytest.mark.parametrize("choose", ["top", "last-k", "random", "random-keep"])
@pytest.mark.parametrize("represent", ["paper", "mean", "last"])
@pytest.mark.parametrize("fix", ["none", "head"])
def test_equals_full_attention_while_there_are_no_more_chunks_than_slots(choose, represent, fix):
    inputs = random_inputs(20, heads=4, kv_heads=2)
    result = run(inputs, choose=choose, represent=represent, fix=fix, begin=0)
    np.testing.assert_allclose(result.out, full(*inputs).out, rtol=1e-12, atol=1e-12)


def test_one_choice_for_all_heads_is_that_of_their_summed_scores():
    inputs = q, _, _ = random_inputs(60, heads=6, kv_heads=2)
    reps = twin.all_representations(*inputs, Options(**SMALL), frequencies(8, 10000.0))
    result = run(inputs, fix="head")
    for i in range(20, 60):
        scores = [sum(q[i, h] @ reps[c, h] for h in range(6)) for c in range(len(reps))]
        highest = sorted(range(1, i // 4 - 1), key=lambda c: -scores[c])[:2]
        for row in result.rows[i]:
            assert row.chunks == sorted({0, i // 4 - 1, i // 4} | set(highest))
    assert sets_of(run(inputs, fix="head", select="kv")) == sets_of(result)


def test_a_later_layer_keeps_the_choice_of_the_first_and_its_own_keys_and_values():
    inputs = random_inputs(60, heads=6, kv_heads=2)
    first = random_inputs(60, heads=6, kv_heads=2, seed=9)
    for fix, per_head in (("layer", "none"), ("both", "head")):
        result = run(inputs, layer=3, first_layer=first, fix=fix)
        assert chunks_of(result) == chunks_of(run(first, fix=per_head))
        assert chunks_of(result) != chunks_of(run(inputs, fix=per_head))
        in_first = run(inputs, layer=0, fix=fix)
        np.testing.assert_array_equal(in_first.out, run(inputs, fix=per_head).out)
        # With the choice of its own keys the layer is as it would be alone.
        np.testing.assert_array_equal(run(inputs, layer=3, first_layer=inputs, fix=fix).out, in_first.out)


def test_fixed_random_choices_are_those_of_layer_zero_or_chooser_zero():
    inputs = random_inputs(60, heads=6, kv_heads=2)
    for choose in RANDOM:
        free = chunks_of(run(inputs, choose=choose))
        assert chunks_of(run(inputs, layer=3, choose=choose, fix="layer")) == free
        for layer, fix in ((0, "head"), (3, "both")):
            assert chunks_of(run(inputs, layer=layer, choose=choose, fix=fix)) == [[x[0]] * 6 for x in free]
        assert chunks_of(run(inputs, layer=3, choose=choose, fix="head")) != chunks_of(
            run(inputs, layer=0, choose=choose, fix="head")
        )
        by_group = chunks_of(run(inputs, choose=choose, select="kv"))
        assert by_group == [[x[0]] * 3 + [x[1]] * 3 for x in free]


def test_plain_representations_are_the_mean_and_the_last_of_the_rotated_keys():
    q, k, v = random_inputs(24, heads=4, kv_heads=2)
    theta = frequencies(8, 10000.0)
    for represent in ("mean", "last"):
        for reps in ("head", "kv"):
            options = Options(**SMALL, represent=represent, reps=reps)
            found = twin.all_representations(q, k, v, options, theta)
            rotated = [rotate(k[8 + o, 1], o, theta) for o in range(4)]
            expected = sum(rotated) / 4 if represent == "mean" else rotated[3]
            np.testing.assert_allclose(found[2, 2], expected, rtol=1e-12)
            np.testing.assert_allclose(found[2, 3], expected, rtol=1e-12)


def test_all_kinds_of_representations_choose_differently():
    inputs = random_inputs(60)
    kinds = [chunks_of(run(inputs, represent=represent)) for represent in ("paper", "mean", "last")]
    assert kinds[0] != kinds[1] != kinds[2] != kinds[0]


def test_oddities_of_the_official_code_go_with_the_ablations():
    inputs = random_inputs(60)
    for options in (
        dict(choose="random"),
        dict(choose="random-keep"),
        dict(first="off"),
        dict(choose="last-k"),
    ):
        canonical = run(inputs, **options)
        own = run(inputs, compat=["own-key"], **options)
        for a, b in zip(canonical.rows[20:], own.rows[20:]):
            assert [row.keys[:-1] for row in a] == [row.keys for row in b]
        ends = run(inputs, 0, compat=["chunk-end"], **options)
        for i in range(20, 60):
            for a, b in zip(canonical.rows[i], ends.rows[i]):
                assert a == b if (i + 1) % 4 else len(b.chunks) == 4 and b.chunks[-1] == i // 4


# --- goldens and mutations


# The widths of the other gaps are in the manifest, and test_golden.py looks at them.
@pytest.mark.parametrize("case", [c for c in LONGHEADS if c.inputs != "plain"], ids=lambda case: case.name)
def test_float32_cannot_flip_a_choice(case, monkeypatch):
    assert_float32_chooses_alike(case, twin, "best", monkeypatch)


ALTERNATIVES = {
    "represent": ("paper", "mean", "last"),
    "choose": ("top", "random", "random-keep", "last-k"),
    "first": ("on", "off"),
    "fix": ("none", "head", "layer", "both"),
}
SAME_IN_LAYER_ZERO = ({"none", "layer"}, {"head", "both"})


@pytest.mark.parametrize("case", [c for c in LONGHEADS if c.inputs == "plain"], ids=lambda case: case.name)
def test_every_option_off_its_default_is_told_from_the_others(case):
    options = case.options()
    # Where fix is turned off or on in a later layer, that of layer 0 must be there.
    with_first = replace(case, extra={"first_layer_seed": 77} | case.extra)
    told = 0
    for option, values in ALTERNATIVES.items():
        for other in values:
            if other == options[option] or options[option] == values[0]:
                continue
            if option == "fix" and case.layer == 0 and {other, options[option]} in SAME_IN_LAYER_ZERO:
                continue
            spec = case.spec.replace(f"{option}={options[option]}", f"{option}={other}")
            assert differs_from_golden(replace(with_first, spec=spec), GOLDEN)
            told += 1
    assert told > 0


RANDOM_CASES = ["longheads-random", "longheads-random-keep", "longheads-fix-layer-random"]


def test_another_order_of_the_key_is_noticed(monkeypatch):
    original = twin.draw
    monkeypatch.setattr(
        twin,
        "draw",
        lambda candidates, count, seed, layer, chooser, token: original(
            candidates, count, seed, chooser + 1, layer, token
        ),
    )
    assert not unnoticed(LONGHEADS, *RANDOM_CASES)


def test_a_key_without_the_layer_is_noticed(monkeypatch):
    original = twin.draw
    monkeypatch.setattr(
        twin,
        "draw",
        lambda candidates, count, seed, layer, *rest: original(candidates, count, seed, 0, *rest),
    )
    assert unnoticed(LONGHEADS, *RANDOM_CASES) == ["longheads-fix-layer-random"]


def test_drawing_with_replacement_is_noticed(monkeypatch):
    def replaced(candidates, count, seed, layer, chooser, token):
        one = [twin.finalise(seed + layer + 31 * chooser + 977 * token + t) for t in range(count)]
        return sorted({candidates[x % len(candidates)] for x in one})

    monkeypatch.setattr(twin, "draw", replaced)
    assert not unnoticed(LONGHEADS, *RANDOM_CASES)


def test_a_first_chunk_that_may_be_chosen_is_noticed(monkeypatch):
    original = twin.forced_and_free

    def with_first(i, decoding, options):
        forced, candidates = original(i, decoding, options)
        return forced, range(0, candidates.stop)

    monkeypatch.setattr(twin, "forced_and_free", with_first)
    names = [case.name for case in LONGHEADS if "first=off" in case.spec]
    assert len(names) == 4 and not unnoticed(LONGHEADS, *names)


def test_a_slot_that_stays_empty_without_the_first_chunk_is_noticed(monkeypatch):
    original = twin.free_slots
    monkeypatch.setattr(
        twin,
        "free_slots",
        lambda i, decoding, options: original(i, decoding, options) - (options.first == "off"),
    )
    names = [case.name for case in LONGHEADS if "first=off" in case.spec and "choose=random" not in case.spec]
    assert not unnoticed(LONGHEADS, *names)


def test_unrotated_keys_in_plain_representations_are_noticed(monkeypatch):
    original = twin.all_representations

    def unrotated(q, k, v, options, theta):
        return original(q, k, v, options, 0 * theta)

    monkeypatch.setattr(twin, "all_representations", unrotated)
    assert not unnoticed(LONGHEADS, "longheads-mean", "longheads-last", "longheads-mean-kv")


def test_the_own_layers_choice_is_told_from_the_first_layers():
    for name in ("longheads-fix-layer", "longheads-fix-both"):
        case = case_named(LONGHEADS, name)
        assert differs_from_golden(replace(case, layer=0), GOLDEN)


def test_the_higher_index_among_ties_is_noticed(monkeypatch):
    monkeypatch.setattr(
        twin, "best", lambda scores, count: (sorted(scores, key=lambda c: (-scores[c], -c))[:count], np.inf)
    )
    assert not unnoticed(LONGHEADS, "longheads-tie-last-k")
