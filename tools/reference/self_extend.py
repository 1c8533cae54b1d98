"""Self-Extend written down naively in float64: one query at a time, an explicit position for every key.

Every key j <= i is attended. Two position tables: neighbours, i - j < W, have their true positions (query i,
key j); the others have grouped ones, key floor(j/G) and query floor(i/G) + W - floor(W/G). The two lists of
logits meet in one softmax.

Choices, where sources differ:
- fraction=floor is the paper's form and the default. fraction=exact is the form of the official eager code,
  which divides truly when it shifts the grouped query: floor(i/G) + W - W/G, so that distances are fractions
  where G does not divide W. Both hold for prefill and decode alike: a row knows no phase.
- log_n is the length L of the optional scale max(1, ln(i+1)/ln(L)) on the logits (the code's scale_base, off
  by default). The published use sets it to the trained window, which is what log_n=on means.
- The code leaves the shift out while no query is at W or beyond; nothing is grouped then: no difference.
"""

from dataclasses import dataclass

import numpy as np

from common import frequencies, rotate, softmax
from golden import Result, Row


@dataclass
class Options:
    group: int  # G
    window: int  # W
    fraction: str = "floor"  # or "exact"
    log_n: int | None = None  # L of the log-n scale; None: off
    base: float = 10000.0  # RoPE base

    def __post_init__(self):
        assert self.group >= 1 and self.window >= 1 and self.fraction in ("floor", "exact")


def is_neighbour(i, j, options):
    return i - j < options.window


def shift(options):
    """What the grouped position of a query has on top of floor(i/G)."""
    whole = options.window // options.group
    return options.window - (whole if options.fraction == "floor" else options.window / options.group)


def positions(i, j, options):
    """(position of the query, position of the key) for this pair."""
    if is_neighbour(i, j, options):
        return i, j
    return i // options.group + shift(options), j // options.group


def logit_scale(i, head_dim, options):
    tau = 1.0 / np.sqrt(head_dim)
    return tau if options.log_n is None else tau * max(1.0, np.log(i + 1) / np.log(options.log_n))


def self_extend(q, k, v, options):
    """q: [n, H, d]; k, v: [n, H_kv, d]; unrotated, in the half-split layout."""
    n, n_heads, head_dim = q.shape
    n_kv_heads = k.shape[1]
    theta = frequencies(head_dim, options.base)
    result = Result(np.zeros((n, n_heads, head_dim)), [])
    for i in range(n):
        scale = logit_scale(i, head_dim, options)
        table = np.array([positions(i, j, options) for j in range(i + 1)], dtype=np.float64)
        distances = table[:, 0] - table[:, 1]
        k_rotated = rotate(k[: i + 1], -distances[:, None], theta)
        keys = list(zip(range(i + 1), distances.tolist()))
        grouped = q[i].reshape(n_kv_heads, n_heads // n_kv_heads, head_dim)
        logits = scale * np.einsum("mkd,kgd->kgm", k_rotated, grouped)
        result.out[i] = np.einsum("kgm,mkd->kgd", softmax(logits), v[: i + 1]).reshape(n_heads, head_dim)
        largest = np.abs(logits).max(axis=-1).ravel()
        result.rows.append([Row(keys, scale, max_logit=float(x)) for x in largest])
    return result
