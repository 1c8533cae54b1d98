"""ReRoPE and Leaky ReRoPE written down naively in float64: one query at a time, an explicit distance each.

Every key j <= i is attended, in one softmax. With D0 = i - j: where D0 < w the distance is D0; beyond, it is
w (ReRoPE) or w + (D0 - w)/factor (Leaky ReRoPE). Prefill and decode agree.

Choices:
- The official patches also multiply the logits by max(1, ln(i+1)/ln(log_n_base)); log_n=on. The base of that
  logarithm is the patch's own training_length, not the model's window, so it is an option here.
- The RoPE base is the model's. The official patches have 10000 whatever the model, which is a limit of the
  library version they patch.
"""

from dataclasses import dataclass

import numpy as np

from common import frequencies, rotate, softmax
from golden import Result, Row


@dataclass
class Options:
    window: int  # w
    factor: float | None = None  # of Leaky ReRoPE; None: ReRoPE
    log_n: bool = True
    log_n_base: int = 4096
    base: float = 10000.0  # RoPE base

    def __post_init__(self):
        assert self.window >= 1 and self.log_n_base >= 2
        assert self.factor is None or self.factor >= 1


def distance(i, j, options):
    if i - j < options.window:
        return i - j
    if options.factor is None:
        return options.window
    return options.window + (i - j - options.window) / options.factor


def log_n_scale(i, options):
    return max(1.0, np.log(i + 1) / np.log(options.log_n_base)) if options.log_n else 1.0


def rerope(q, k, v, options):
    """q: [n, H, d]; k, v: [n, H_kv, d]; unrotated, in the half-split layout."""
    n, n_heads, head_dim = q.shape
    n_kv_heads = k.shape[1]
    theta = frequencies(head_dim, options.base)
    result = Result(np.zeros((n, n_heads, head_dim)), [])
    for i in range(n):
        scale = log_n_scale(i, options) / np.sqrt(head_dim)
        keys = [(j, distance(i, j, options)) for j in range(i + 1)]
        # The query stays as it is and key j turns back by D: q^T R(-D) k.
        k_rotated = rotate(k[: i + 1], np.array([[-d] for _, d in keys]), theta)
        grouped = q[i].reshape(n_kv_heads, n_heads // n_kv_heads, head_dim)
        logits = scale * np.einsum("mkd,kgd->kgm", k_rotated, grouped)
        result.out[i] = np.einsum("kgm,mkd->kgd", softmax(logits), v[: i + 1]).reshape(n_heads, head_dim)
        largest = np.abs(logits).max(axis=-1).ravel()
        result.rows.append([Row(keys, scale, max_logit=float(x)) for x in largest])
    return result
