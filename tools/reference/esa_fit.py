"""The compression of ESA's scores in closed form: projections W_q and W_k of r rows for which
(W_q q).(W_k k) is as near to q.k as any of that rank can be, over all pairs of a calibration text's queries
and keys.

    sum over (q, k) of (q.k - (W_q q).(W_k k))^2  =  | Sq^(1/2) (1 - W_q^T W_k) Sk^(1/2) |^2 (Frobenius)

with the second moments Sq = sum q q^T and Sk = sum k k^T, so the best product is the truncated singular
value decomposition Sq^(1/2) Sk^(1/2) = U S V^T in the middle: W_q = S_r^(1/2) U_r^T Sq^(-1/2), W_k =
S_r^(1/2) V_r^T Sk^(-1/2). Directions in which there are no data have inverse 0. Only W_q^T W_k is
determined: rows may change their signs together, and mix where singular values are equal.

q is what esa.py compresses: of each KV head the sum of the queries that share it, rotated by w; k is
unrotated. The projections belong to one order of the dimensions (here half-split).
"""

import numpy as np

from common import frequencies, rotate


def vectors(q, k, w, base):
    """The calibration's q and k, [n, H_kv * d] each. q: [n, H, d], k: [n, H_kv, d], unrotated."""
    n, n_heads, head_dim = q.shape
    n_kv_heads = k.shape[1]
    far = rotate(np.asarray(q, dtype=np.float64), w, frequencies(head_dim, base))
    of_group = far.reshape(n, n_kv_heads, n_heads // n_kv_heads, head_dim).sum(axis=2)
    return of_group.reshape(n, -1), np.asarray(k, dtype=np.float64).reshape(n, -1)


def second_moment(x):
    return x.T @ x


def roots(moment, floor=1e-12):
    """S^(1/2) and the pseudo-inverse S^(-1/2) of a symmetric matrix without negative eigenvalues."""
    values, columns = np.linalg.eigh(moment)
    there = values > floor * values.max()
    root = np.where(there, np.sqrt(np.maximum(values, 0)), 0)
    inverse = np.where(there, 1 / np.where(there, root, 1), 0)
    return (columns * root) @ columns.T, (columns * inverse) @ columns.T


def fit(sq, sk, rank):
    """(W_q, W_k), both [rank, H_kv * d], and all singular values of Sq^(1/2) Sk^(1/2)."""
    root_q, inverse_q = roots(sq)
    root_k, inverse_k = roots(sk)
    u, s, vt = np.linalg.svd(root_q @ root_k)
    half = np.sqrt(s[:rank])[:, None]
    return half * (u[:, :rank].T @ inverse_q), half * (vt[:rank] @ inverse_k), s


def squared_error(w_q, w_k, sq, sk):
    """The sum over all pairs of (q.k - (W_q q).(W_k k))^2, from the moments."""
    rest = np.eye(len(sq)) - w_q.T @ w_k
    return float(np.trace(sk @ rest.T @ sq @ rest))
