"""The naive LongHeads twin against what its definition implies, and against mutations that must not pass.

Run with pytest in the oracle's environment.
"""

import json

import numpy as np
import pytest

import longheads as twin
from checks import GOLDENS
from common import frequencies, rotate, softmax
from longheads import Options, longheads
from longheads_goldens import CASES, arrays_of, make_inputs
from uniform import uniform

GOLDEN = GOLDENS / "longheads"


def random_inputs(n, heads=2, kv_heads=1, dim=8, seed=7):
    q = 3 * uniform("q", seed, (n, heads, dim)).astype(np.float64)
    k = 2 * uniform("k", seed, (n, kv_heads, dim)).astype(np.float64)
    v = 4 * uniform("v", seed, (n, kv_heads, dim)).astype(np.float64)
    return q, k, v


def full_attention(q, k, v, base=10000.0):
    n, heads, dim = q.shape
    group, theta = heads // k.shape[1], frequencies(dim, base)
    at = np.arange(n)[:, None]
    q, k = rotate(q, at, theta), rotate(k, at, theta)
    out = np.zeros_like(q)
    for h in range(heads):
        logits = q[:, h] @ k[:, h // group].T / np.sqrt(dim)
        out[:, h] = softmax(np.where(np.tri(n) > 0, logits, -np.inf)) @ v[:, h // group]
    return out


def differs_from_goldens(name):
    """True when the twin, as it is now, does not reproduce the golden of this case."""
    c = next(c for c in CASES if c["name"] == name)
    arrays, _ = arrays_of(c, longheads(*make_inputs(c), c["options"], c["n_prefill"]))
    stored = {array: np.load(GOLDEN / f"{name}.{array}.npy") for array in arrays}
    exact = all(np.array_equal(arrays[x], stored[x]) for x in ("chunks", "sets", "attended"))
    close = all(np.allclose(arrays[x], stored[x], rtol=1e-5, atol=1e-5) for x in ("out", "projection"))
    return not (exact and close)


# --- the definition
# -------------------------------------------------------------------------------------------------


def test_chosen_chunks_take_consecutive_slots():
    # l=4, K=4, i=30: c=7, o=2; chunks {0,3,6,7}.
    table, query = twin.positions_of([0, 3, 6, 7], 30, 4)
    assert query == 14
    assert [table[j] for j in (0, 1, 2, 3)] == [0, 1, 2, 3]
    assert [table[j] for j in (12, 13, 14, 15)] == [4, 5, 6, 7]
    assert [table[j] for j in (24, 25, 26, 27)] == [8, 9, 10, 11]
    assert [table[j] for j in (28, 29, 30)] == [12, 13, 14]
    assert len(table) == 15


def test_query_rotations_of_the_slots_in_plane_c_and_plane_a():
    # Relative distance D = x - rho(key); x per slot is 14, 10, 6, 2 where keys carry R(j mod l), 14, 22,
    # 30, 30 where they carry R(j).
    table, query = twin.positions_of([0, 3, 6, 7], 30, 4)
    for chunk, x_local, x_absolute in ((0, 14, 14), (3, 10, 22), (6, 6, 30), (7, 2, 30)):
        for j in range(4 * chunk, min(4 * chunk + 4, 31)):
            assert query - table[j] == x_local - j % 4 == x_absolute - j


def test_rotation_depends_on_the_difference_of_positions_only():
    q, k = uniform("a", 1, (8,)).astype(float), uniform("b", 1, (8,)).astype(float)
    theta = frequencies(8, 10000.0)
    assert np.isclose(rotate(q, 41, theta) @ rotate(k, 30, theta), rotate(q, 11, theta) @ k)


def test_rows_below_begin_are_full_attention():
    q, k, v = random_inputs(40)
    result = longheads(q, k, v, Options(chunk=4, window=12, begin=20))
    reference = full_attention(q, k, v)
    np.testing.assert_allclose(result.out[:20], reference[:20], rtol=1e-12, atol=1e-12)
    assert not np.allclose(result.out[30:], reference[30:], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("heads,kv_heads,dim", [(2, 2, 8), (6, 2, 8), (4, 1, 12)])
def test_equals_full_attention_while_there_are_no_more_chunks_than_slots(heads, kv_heads, dim):
    q, k, v = random_inputs(32, heads, kv_heads, dim)
    result = longheads(q, k, v, Options(chunk=4, window=32, begin=0))
    np.testing.assert_allclose(result.out, full_attention(q, k, v), rtol=1e-12, atol=1e-12)


def test_current_and_previous_chunk_are_at_true_distance_and_the_first_is_always_seen():
    q, k, v = random_inputs(77)
    result = longheads(q, k, v, Options(chunk=4, window=20, begin=20))
    for i in range(20, 77):
        for row in result.rows[i]:
            c = i // 4
            assert len(row.chunks) == 5 and {0, c - 1, c} <= set(row.chunks)
            distance = dict(row.keys)
            assert all(distance[j] == i - j for j in range(4 * (c - 1), i + 1))
            assert distance[0] == 4 * 4 + i % 4
            assert set(distance) == {
                j for chunk in row.chunks for j in range(4 * chunk, min(4 * chunk + 4, i + 1))
            }


def test_a_row_depends_on_nothing_after_it():
    q, k, v = random_inputs(61)
    options = Options(chunk=4, window=16, begin=16)
    whole = longheads(q, k, v, options)
    for n in (1, 3, 4, 5, 15, 16, 17, 20, 43):
        part = longheads(q[:n], k[:n], v[:n], options)
        np.testing.assert_array_equal(part.out, whole.out[:n])
        assert part.rows == whole.rows[:n]


def test_canonical_decode_step_equals_prefill_row():
    q, k, v = random_inputs(61)
    options = Options(chunk=4, window=16, begin=24)
    whole = longheads(q, k, v, options)
    for n_prefill in (0, 1, 23, 24, 31):
        np.testing.assert_array_equal(longheads(q, k, v, options, n_prefill).out, whole.out)


def test_representation_weighs_keys_by_a_value_space_mean_in_half_split_layout():
    # Two tokens, d=4, no query: O is the plain mean of the values, and the rotated keys are a*e0 and a*e1.
    theta, a = frequencies(4, 10000.0), 3.0
    k = np.array([[a, 0, 0, 0], rotate(np.array([0.0, a, 0, 0]), -1, theta)])[:, None]
    v = np.array([[1.0, -2.0, 5.0, 0.0], [2.0, 0.0, -1.0, 4.0]])[:, None]
    reps = twin.all_representations(np.zeros((2, 1, 4)), k, v, Options(chunk=2, window=6, begin=6), theta)
    w = softmax(np.array([1.5, -1.0]) * a / 2)
    np.testing.assert_allclose(reps[0, 0], [a * w[0], a * w[1], 0, 0], atol=1e-12)


def test_representations_from_absolute_keys_agree():
    # On a cache that holds R(j)k: qc unchanged, w from R(chunk*l)qc, and c turned back by R(-chunk*l).
    q, k, v = random_inputs(24, heads=1)
    options, theta = Options(chunk=4, window=12, begin=12), frequencies(8, 10000.0)
    reps = twin.all_representations(q, k, v, options, theta)
    for chunk in range(6):
        tokens = np.arange(4 * chunk, 4 * chunk + 4)
        q_absolute, k_absolute = rotate(q[tokens, 0], tokens, theta), rotate(k[tokens, 0], tokens, theta)
        qc = twin.chunk_mean(q_absolute, k_absolute, v[tokens, 0])
        c = twin.representation(rotate(qc, 4 * chunk, theta), k_absolute)
        np.testing.assert_allclose(rotate(c, -4 * chunk, theta), reps[chunk, 0], rtol=1e-12, atol=1e-12)


def test_grouped_forms_agree_when_there_is_nothing_to_group():
    q, k, v = random_inputs(61, heads=3, kv_heads=3)
    base = longheads(q, k, v, Options(chunk=4, window=16, begin=16))
    for reps in ("head", "kv"):
        for select in ("head", "kv"):
            other = longheads(q, k, v, Options(chunk=4, window=16, begin=16, reps=reps, select=select))
            np.testing.assert_array_equal(other.out, base.out)


def test_group_selection_is_one_for_all_heads_of_a_group():
    q, k, v = random_inputs(61, heads=6, kv_heads=2)
    result = longheads(q, k, v, Options(chunk=4, window=16, begin=16, select="kv"))
    for rows in result.rows:
        assert (
            rows[0].chunks == rows[1].chunks == rows[2].chunks
            and rows[3].chunks == rows[4].chunks == rows[5].chunks
        )
    own = longheads(q, k, v, Options(chunk=4, window=16, begin=16))
    assert any(rows[0].chunks != rows[1].chunks for rows in own.rows)


def test_one_group_score_is_the_folded_query_times_the_shared_representation():
    q, k, v = random_inputs(61, heads=6, kv_heads=2)
    options = Options(chunk=4, window=16, begin=16, reps="kv", select="kv")
    reps = twin.all_representations(q, k, v, options, frequencies(8, 10000.0))
    scores = twin.scores_of(q[60], {5: reps[5]}, range(3, 6))
    assert np.isclose(scores[5], q[60, 3:6].sum(axis=0) @ reps[5, 3])


def test_ties_go_to_the_lower_index():
    assert twin.best({4: 1.0, 2: 1.0, 9: 3.0, 1: 0.5}, 2)[0] == [9, 2]
    assert twin.best({4: 0.0, 2: -0.0, 9: 0.0}, 2)[0] == [2, 4]


# --- the official code's oddities
# -----------------------------------------------------------------------------------


def phases(compat, n=61, begin=24, n_prefill=0, window=16):
    q, k, v = random_inputs(n)
    canonical = longheads(q, k, v, Options(chunk=4, window=window, begin=begin))
    return canonical, longheads(
        q, k, v, Options(chunk=4, window=window, begin=begin, compat=frozenset(compat)), n_prefill
    )


def test_own_key_is_missing_in_prefill_only():
    canonical, odd = phases(["own-key"], n_prefill=50)
    for i, (a, b) in enumerate(zip(canonical.rows, odd.rows)):
        expected = [row.keys[:-1] if 24 <= i < 50 else row.keys for row in a]
        assert [row.keys for row in b] == expected


def test_chunk_end_in_decode_uses_one_slot_fewer_and_leaves_the_previous_chunk_to_chance():
    canonical, odd = phases(["chunk-end"])
    lost = 0
    for i, (a, b) in enumerate(zip(canonical.rows, odd.rows)):
        if i < 24 or (i + 1) % 4:
            assert a == b
            continue
        for row in b:
            assert len(row.chunks) == 3 and row.chunks[0] == 0 and row.chunks[-1] == i // 4
            assert dict(row.keys)[0] == 3 * 4 - 1 and row.keys[-1] == (i, 0) and len(row.keys) == 12
            lost += i // 4 - 1 not in row.chunks
    assert lost > 0


def test_chunk_end_does_not_touch_prefill():
    canonical, odd = phases(["chunk-end"], n_prefill=61)
    np.testing.assert_array_equal(canonical.out, odd.out)


def test_decode_begins_one_token_early():
    canonical, odd = phases(["begin"])
    different = [i for i in range(61) if canonical.rows[i] != odd.rows[i]]
    assert different == [23]
    assert all(len(row.chunks) == 4 for row in odd.rows[23])
    canonical, odd = phases(["begin"], n_prefill=24)
    assert canonical.rows == odd.rows


def test_all_oddities_decode_is_prefill_plus_self_but_for_chunk_ends():
    q, k, v = random_inputs(61)
    options = Options(chunk=4, window=16, begin=16, compat=frozenset(twin.COMPAT))
    prefill, decode = longheads(q, k, v, options), longheads(q, k, v, options, 0)
    for i in range(16, 61):
        for a, b in zip(prefill.rows[i], decode.rows[i]):
            assert (b.keys == a.keys + [(i, 0)]) == ((i + 1) % 4 != 0)
    assert (
        all(a == b for a, b in zip(prefill.rows[:15], decode.rows[:15]))
        and prefill.rows[15] != decode.rows[15]
    )


# --- goldens and mutations
# ------------------------------------------------------------------------------------------


def test_inputs_are_the_documented_ones():
    # By hand from the formula in uniform.py, in plain integers.
    state = 0xCBF29CE484222325
    state = ((state ^ ord("q")) * 0x100000001B3) % 2**64 ^ 5
    z = (state + 3 * 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    z ^= z >> 31
    assert uniform("q", 5, (3,))[2] == (z >> 40) * 2.0**-23 - 1


@pytest.mark.parametrize("c", CASES, ids=lambda c: c["name"])
def test_twin_reproduces_its_goldens(c):
    assert not differs_from_goldens(c["name"])


def test_float32_cannot_flip_a_choice():
    for entry in json.loads((GOLDEN / "manifest.json").read_text())["cases"]:
        assert entry["min_gap"] is None or entry["min_gap"] > 1e-4
        assert (entry["n_ties"] > 0) == (entry["inputs"] != "plain")


# Every mutation must break every case of this list.
MUTATED = ["mha", "gqa-head-head", "mqa-begin-above-window", "short-chunks"]


@pytest.fixture(params=MUTATED)
def golden_case(request):
    return request.param


def test_dropping_the_first_chunk_is_noticed(golden_case, monkeypatch):
    original = twin.forced_and_free
    monkeypatch.setattr(
        twin, "forced_and_free", lambda *a: ({c for c in original(*a)[0] if c > 0}, original(*a)[1])
    )
    assert differs_from_goldens(golden_case)


def test_a_slot_off_by_one_is_noticed(golden_case, monkeypatch):
    original = twin.positions_of

    def shifted(chunks, i, chunk):
        table, query = original(chunks, i, chunk)
        return {j: p + (chunk if j // chunk == chunks[1] else 0) for j, p in table.items()}, query

    monkeypatch.setattr(twin, "positions_of", shifted)
    assert differs_from_goldens(golden_case)


def test_a_query_position_off_by_one_is_noticed(golden_case, monkeypatch):
    original = twin.positions_of
    monkeypatch.setattr(twin, "positions_of", lambda *a: (original(*a)[0], original(*a)[1] + 1))
    assert differs_from_goldens(golden_case)


def test_the_layout_trap_is_noticed(golden_case, monkeypatch):
    # What happens when keys lie in interleaved pairs and the value-space mean is not brought into their
    # order.
    original = twin.representation
    monkeypatch.setattr(
        twin, "representation", lambda qc, k: original(np.concatenate([qc[0::2], qc[1::2]]), k)
    )
    assert differs_from_goldens(golden_case)


def test_the_layout_trap_changes_choices_and_not_only_rounding(monkeypatch):
    c = next(c for c in CASES if c["name"] == "gqa-head-head")
    right = longheads(*make_inputs(c), c["options"])
    original = twin.representation
    monkeypatch.setattr(
        twin, "representation", lambda qc, k: original(np.concatenate([qc[0::2], qc[1::2]]), k)
    )
    wrong = longheads(*make_inputs(c), c["options"])
    flipped = sum(a.chunks != b.chunks for x, y in zip(right.rows, wrong.rows) for a, b in zip(x, y))
    assert flipped > 50


def test_a_masked_representation_is_noticed(golden_case, monkeypatch):
    def causal(q_local, k_local, v):
        logits = q_local @ k_local.T / np.sqrt(k_local.shape[-1])
        return (softmax(np.where(np.tri(len(v)) > 0, logits, -np.inf)) @ v).mean(axis=0)

    monkeypatch.setattr(twin, "chunk_mean", causal)
    assert differs_from_goldens(golden_case)


def test_choosing_among_ties_by_the_higher_index_is_noticed(monkeypatch):
    original = twin.best
    monkeypatch.setattr(
        twin,
        "best",
        lambda scores, count: (
            sorted(scores, key=lambda c: (-scores[c], -c))[:count],
            original(scores, count)[1],
        ),
    )
    for name in ("tie-zero-keys", "tie-some-zero-keys", "tie-repeated"):
        assert differs_from_goldens(name)


@pytest.mark.parametrize("name", ["gqa-kv-head", "gqa-head-kv", "gqa-kv-kv"])
def test_every_grouped_form_is_told_from_the_faithful_one(name, monkeypatch):
    c = next(c for c in CASES if c["name"] == name)
    monkeypatch.setitem(c, "options", Options(chunk=8, window=64, begin=64, base=100000.0))
    assert differs_from_goldens(name)
