"""The goldens of all methods: their format, what they cover, and that every twin reproduces its own."""

import json

import numpy as np
import pytest

import golden
from checks import GOLDEN
from golden import Case, Result, Row, arrays_of, differs_from_golden
from method_goldens import parts

PARTS = dict(parts())
CASES = [case for cases in PARTS.values() for case in cases]
MANIFESTS = {name: json.loads((GOLDEN / name).read_text()) for name in PARTS}
ENTRIES = [entry for manifest in MANIFESTS.values() for entry in manifest["cases"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_twin_reproduces_its_golden(case):
    assert not differs_from_golden(case, GOLDEN)


def test_manifests_list_just_the_cases():
    assert [entry["name"] for entry in ENTRIES] == [case.name for case in CASES]


def test_every_method_has_every_way_of_sharing_heads_with_every_size():
    def sharing(case):
        return "mha" if case.heads == case.kv_heads else "mqa" if case.kv_heads == 1 else "gqa"

    seen = {(case.spec.split(",")[0], sharing(case), case.dim) for case in CASES}
    methods = {method for method, _, _ in seen}
    assert seen == {(m, s, d) for m in methods for s in ("mha", "gqa", "mqa") for d in (64, 96, 128)}


def test_every_method_has_a_schedule_with_an_amplitude():
    scaled = {case.spec.split(",")[0] for case in CASES if case.amplitude() > 1.3}
    assert scaled == {case.spec.split(",")[0] for case in CASES}


def test_manifests_carry_the_specification():
    for manifest in MANIFESTS.values():
        assert manifest["format"] == [line for line in golden.__doc__.splitlines() if line]
    for entry in ENTRIES:
        assert all(f"{name}" in golden.__doc__ for name in entry)


def test_float32_cannot_flip_a_choice():
    for entry in ENTRIES:
        assert entry["min_gap"] is None or entry["min_gap"] > 1e-4
        assert entry["n_ties"] == 0 or entry["inputs"] != "plain"


def two_queries():
    return Case(
        "x", "full", None, heads=1, kv_heads=1, dim=2, n=2, trained_window=2, attended_rows=[(1, 0)], unit=2
    )


def rows(*keys):
    return Result(
        np.ones((2, 1, 2)), [[Row([(0, 0)], 1.0)], [Row(list(keys), 1.0, gap=0.25)]], gaps=[0.0, np.inf]
    )


def test_pairs_are_sorted_scaled_and_repeated():
    arrays, entry = arrays_of(two_queries(), rows((1, 0), (0, 2.5), (0, 1), (0, 2.5)))
    np.testing.assert_array_equal(
        arrays["attended"], [[1, 0, 0, 2], [1, 0, 0, 5], [1, 0, 0, 5], [1, 0, 1, 0]]
    )
    value = 0x811C9DC5
    for number in (0, 2, 0, 5, 0, 5, 1, 0):
        for byte in number.to_bytes(4, "little"):
            value = (value ^ byte) * 0x01000193 % 2**32
    assert arrays["sets"][1, 0] == value
    assert (entry["n_choices"], entry["n_ties"], entry["min_gap"]) == (2, 1, 0.25)
    with pytest.raises(AssertionError, match="unit"):
        arrays_of(two_queries(), rows((0, 0.3)))


def test_a_repeat_a_distance_and_a_key_change_the_hash():
    some = [[(0, 1), (1, 0)], [(0, 1), (0, 1), (1, 0)], [(0, 1.5), (1, 0)], [(1, 0)], [(0, 1), (1, -1)]]
    hashes = {int(arrays_of(two_queries(), rows(*keys))[0]["sets"][1, 0]) for keys in some}
    assert len(hashes) == len(some)


def test_kinds_of_inputs():
    shape = dict(heads=2, kv_heads=1, dim=4, n=9, trained_window=9, twin=None, spec="full")
    q, k, v = Case("x", **shape).make_inputs()
    assert q.shape == (9, 2, 4) and k.shape == v.shape == (9, 1, 4) and q.dtype == np.float32
    assert np.abs(q).max() > 2 and np.abs(q).max() < 3 and np.abs(v).max() < 4
    zero = Case("x", **shape, inputs="zero-keys").make_inputs()
    assert not zero[1].any() and np.array_equal(zero[2], v)
    some = Case("x", **shape, inputs="some-zero-keys", period=2).make_inputs()
    assert [t for t in range(9) if some[1][t].any()] == [0, 1, 6, 7]
    again = Case("x", **shape, inputs="repeated", period=4).make_inputs()
    for x, plain in zip(again, (q, k, v)):
        np.testing.assert_array_equal(x, plain[[0, 1, 2, 3, 0, 1, 2, 3, 0]])
    keys = Case("x", **shape, inputs="repeated-keys", period=4).make_inputs()
    assert np.array_equal(keys[1], again[1]) and np.array_equal(keys[0], q)
    assert q[3, 1, 2] == np.float32(3) * golden.uniform("q", 1, (31,))[30]


def test_options_are_read_from_the_spec():
    case = Case("x", "a,group=4,form=slots", None, 1, 1, 2, n=1, trained_window=1)
    assert case.options() == {"group": 4, "form": "slots"}
    assert Case("x", "full", None, 1, 1, 2, n=1, trained_window=1).options() == {}
