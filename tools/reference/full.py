"""Dense causal attention written down naively in float64: what every method comes to in its limit.

Query i attends to every key j <= i at distance i - j, in one softmax, at scale 1/sqrt(d).
"""

import numpy as np

from common import frequencies, rotate, softmax
from golden import Result, Row


def full(q, k, v, base=10000.0):
    """q: [n, H, d]; k, v: [n, H_kv, d]; unrotated, in the half-split layout."""
    n, n_heads, head_dim = q.shape
    n_kv_heads = k.shape[1]
    theta, scale = frequencies(head_dim, base), 1.0 / np.sqrt(head_dim)
    result = Result(np.zeros((n, n_heads, head_dim)), [])
    at = np.arange(n)[:, None]
    q, k = rotate(q, at, theta), rotate(k, at, theta)
    for i in range(n):
        keys = [(j, i - j) for j in range(i + 1)]
        grouped = q[i].reshape(n_kv_heads, n_heads // n_kv_heads, head_dim)
        logits = scale * np.einsum("mkd,kgd->kgm", k[: i + 1], grouped)
        result.out[i] = np.einsum("kgm,mkd->kgd", softmax(logits), v[: i + 1]).reshape(n_heads, head_dim)
        largest = np.abs(logits).max(axis=-1).ravel()
        result.rows.append([Row(keys, scale, max_logit=float(x)) for x in largest])
    return result
