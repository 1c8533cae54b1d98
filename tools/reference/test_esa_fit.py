"""The closed-form compression of ESA against sums over all pairs, alternating least squares and
perturbations."""

import json

import numpy as np
import pytest

import esa_fit
import esa_fit_goldens
from checks import GOLDENS, random_inputs
from common import frequencies, rotate
from esa import Options, esa
from esa_fit import fit, roots, second_moment, squared_error, vectors


def calibration(n=60, width=6, seed=3):
    """Queries and keys whose dimensions matter unequally, [n, width] each."""
    fade = 0.7 ** np.arange(width)
    mix = random_inputs(width, 1, 1, width, seed)
    q = random_inputs(n, 1, 1, width, seed + 1)[0][:, 0] * fade @ mix[0][:, 0]
    k = random_inputs(n, 1, 1, width, seed + 2)[1][:, 0] * fade @ mix[1][:, 0]
    return q, k


def error_over_pairs(q, k, w_q, w_k):
    return float(((q @ k.T - (q @ w_q.T) @ (k @ w_k.T).T) ** 2).sum())


def test_roots_are_roots_and_inverses_where_there_are_data():
    s = second_moment(calibration()[0])
    root, inverse = roots(s)
    np.testing.assert_allclose(root @ root, s, rtol=1e-9)
    np.testing.assert_allclose(root @ inverse, np.eye(6), atol=1e-9)


def test_the_error_from_the_moments_is_the_sum_over_all_pairs():
    q, k = calibration()
    w_q, w_k = random_inputs(2, 1, 1, 6)[0][:, 0], random_inputs(2, 1, 1, 6, 8)[0][:, 0]
    expected = error_over_pairs(q, k, w_q, w_k)
    assert np.isclose(squared_error(w_q, w_k, second_moment(q), second_moment(k)), expected)


def test_the_error_left_is_that_of_the_singular_values_dropped():
    q, k = calibration()
    for rank in range(1, 7):
        w_q, w_k, s = fit(second_moment(q), second_moment(k), rank)
        assert w_q.shape == w_k.shape == (rank, 6)
        left = error_over_pairs(q, k, w_q, w_k)
        assert np.isclose(left, (s[rank:] ** 2).sum(), rtol=1e-9, atol=1e-12 * (s**2).sum())
    np.testing.assert_allclose(w_q.T @ w_k, np.eye(6), atol=1e-8)


def test_alternating_least_squares_from_anywhere_ends_there():
    # Each step is the exact optimum of one side with the other one fixed.
    q, k = calibration()
    scores = q @ k.T
    for rank in (1, 2, 4):
        w_q, w_k, _ = fit(second_moment(q), second_moment(k), rank)
        least = error_over_pairs(q, k, w_q, w_k)
        for seed in (1, 2):
            other_k = random_inputs(rank, 1, 1, 6, seed)[0][:, 0]
            for _ in range(200):
                other_q = np.linalg.lstsq(q, scores @ np.linalg.pinv(k @ other_k.T).T, rcond=None)[0].T
                other_k = np.linalg.lstsq(k, scores.T @ np.linalg.pinv(q @ other_q.T).T, rcond=None)[0].T
            found = error_over_pairs(q, k, other_q, other_k)
            assert least * (1 - 1e-9) <= found <= least * (1 + 1e-4)
            np.testing.assert_allclose(other_q.T @ other_k, w_q.T @ w_k, atol=2e-2)


def test_no_small_change_lowers_the_error():
    q, k = calibration()
    w_q, w_k, _ = fit(second_moment(q), second_moment(k), 3)
    least = error_over_pairs(q, k, w_q, w_k)
    for seed in range(1, 30):
        d_q, d_k = (1e-3 * x[:, 0] for x in random_inputs(3, 1, 1, 6, seed)[:2])
        assert error_over_pairs(q, k, w_q + d_q, w_k + d_k) > least


def test_it_is_no_worse_than_the_principal_components_of_the_keys():
    q, k = calibration()
    for rank in range(1, 6):
        components = np.linalg.svd(k, full_matrices=False)[2][:rank]
        w_q, w_k, _ = fit(second_moment(q), second_moment(k), rank)
        assert error_over_pairs(q, k, w_q, w_k) < error_over_pairs(q, k, components, components)


def test_directions_without_data_do_not_matter():
    q, k = calibration()
    k[:, 4:] = 0
    w_q, w_k, s = fit(second_moment(q), second_moment(k), 4)
    assert error_over_pairs(q, k, w_q, w_k) < 1e-12 * (s**2).sum()
    assert np.isfinite(w_q).all() and np.isfinite(w_k).all()
    np.testing.assert_allclose(w_k[:, 4:], 0, atol=1e-9)
    # No more tokens than dimensions.
    few_q, few_k = calibration(n=3)
    w_q, w_k, s = fit(second_moment(few_q), second_moment(few_k), 3)
    assert error_over_pairs(few_q, few_k, w_q, w_k) < 1e-12 * (s**2).sum()


def test_the_vectors_are_those_of_esas_score():
    q, k, _ = random_inputs(20, heads=6, kv_heads=2)
    far, keys = vectors(q, k, 10, 10000.0)
    theta = frequencies(8, 10000.0)
    expected = sum(q[13, h] @ rotate(k[5, h // 3], -10, theta) for h in range(6))
    assert np.isclose(far[13] @ keys[5], expected)


def test_scores_of_low_rank_are_compressed_without_loss():
    q, k, v = random_inputs(60, heads=6, kv_heads=2)
    # Three directions carry all keys.
    k = (k.reshape(60, 16)[:, :3] @ random_inputs(3, 1, 1, 16)[1][:, 0]).reshape(60, 2, 8)
    options = Options(n_init=3, k=8, n_local=10, chunk=4, eps=1)
    far, keys = vectors(q, k, options.n_local, options.base)
    w_q, w_k, _ = fit(second_moment(far), second_moment(keys), 3)
    compressed = Options(n_init=3, k=8, n_local=10, chunk=4, eps=1, score="compressed", dim=3)
    a, b = esa(q, k, v, options), esa(q, k, v, compressed, projections=(w_q, w_k))
    assert [[row.keys for row in rows] for rows in a.rows] == [[row.keys for row in rows] for rows in b.rows]


def test_swapping_or_transposing_a_factor_is_noticed():
    q, k = calibration()
    sq, sk = second_moment(q), second_moment(k)
    w_q, w_k, s = fit(sq, sk, 3)
    least = squared_error(w_q, w_k, sq, sk)
    assert squared_error(w_k, w_q, sq, sk) > 1.01 * least
    original = esa_fit.roots
    u, _, vt = np.linalg.svd(original(sq)[0] @ original(sk)[0])
    half = np.sqrt(s[:3])[:, None]
    wrong = half * (u[:, :3].T @ original(sq)[0]), half * (vt[:3] @ original(sk)[0])
    assert squared_error(*wrong, sq, sk) > 1.01 * least


GOLDEN = GOLDENS / "esa-fit"


@pytest.mark.parametrize("case", esa_fit_goldens.CASES, ids=lambda case: case["name"])
def test_fit_reproduces_its_goldens(case):
    arrays, entry = esa_fit_goldens.arrays_of(case)
    stored = {x["name"]: x for x in json.loads((GOLDEN / "manifest.json").read_text())["cases"]}
    assert entry == stored[case["name"]] and entry["gap"] > 1e-2
    for name, array in arrays.items():
        loaded = np.load(GOLDEN / f"{case['name']}.{name}.npy")
        np.testing.assert_allclose(array, loaded, rtol=1e-5, atol=1e-6 * np.abs(loaded).max())
