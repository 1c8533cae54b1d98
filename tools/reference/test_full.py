"""Dense attention, the limit of every method, and what any method may build on: parts of a softmax merge."""

import numpy as np
import pytest

from checks import assert_outputs_follow_from_pairs, logit, random_inputs
from common import frequencies, rotate
from full import full


@pytest.mark.parametrize("heads,kv_heads,dim", [(2, 2, 8), (6, 2, 8), (4, 1, 12)])
def test_every_key_up_to_the_own_one_at_its_true_distance(heads, kv_heads, dim):
    q, k, v = random_inputs(19, heads, kv_heads, dim)
    result = full(q, k, v)
    assert all(row.keys == [(j, i - j) for j in range(i + 1)] for i in range(19) for row in result.rows[i])
    assert_outputs_follow_from_pairs(result, q, k, v)


def test_the_rotation_is_that_of_complex_numbers():
    q, k, _ = random_inputs(2, dim=12)
    theta = frequencies(12, 500.0)
    for distance in (0, 3, -5, 2.75, 1e5):
        assert np.isclose(
            q[0, 0] @ rotate(k[1, 0], -distance, theta), logit(q[0, 0], k[1, 0], distance, 500.0)
        )
        turned = rotate(q[0, 0], distance + 7, theta) @ rotate(k[1, 0], 7, theta)
        assert np.isclose(turned, logit(q[0, 0], k[1, 0], distance, 500.0))


def test_parts_merged_by_their_sums_are_one_softmax_over_the_union():
    q, k, v = random_inputs(23, heads=1)
    expected = full(q, k, v).out[22, 0]
    logits = np.array([logit(q[22, 0], k[j, 0], 22 - j) for j in range(23)]) / np.sqrt(8)
    for cuts in ([0, 23], [0, 1, 23], [0, 0, 7, 7, 8, 23], list(range(24))):
        total, out = -np.inf, np.zeros(8)
        for begin, end in zip(cuts, cuts[1:]):
            if begin == end:
                continue  # an empty part has the mass 0
            mass = np.log(np.exp(logits[begin:end]).sum())
            part = np.exp(logits[begin:end] - mass) @ v[begin:end, 0]
            merged = np.logaddexp(total, mass)
            out = out * np.exp(total - merged) + part * np.exp(mass - merged)
            total = merged
        np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
