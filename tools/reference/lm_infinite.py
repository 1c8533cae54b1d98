"""LM-Infinite written down naively in float64: one query at a time, an explicit distance for every key.

S = global, w = local. Query i attends to the local keys, i - j < w, at the true distance, and to the sinks
j < S with i - j >= w, all at one constant distance. One softmax. The constant depends on the form:
  official   min(limit, m - 1), where m counts the keys present at the end of the model's call: the prompt's
             tokens so far in prefill, i + 1 in decode. The minimum acts only where limit > local, and there
             rows of the same token differ between calls
  infllm     w - 1 (InfLLM's version)

Top-k middle tokens (top_k > 0), in layers from top_k_from on: only for the last query row of each call (the
last token of a prefill call, and every decoded token), and only where at least k tokens lie in the middle.
The middle are the tokens S <= j < m - w. Each query head scores them by tau * q^T R(-p) k with p = top_k_at,
and its k best (of equal ones the lower index) enter the same softmax with just that logit, so at distance p.

Choices:
- A call is one of the model's: where it ends decides m and the last row, so runs of the same text that are
  cut otherwise differ. The cases say which calls were made.
- Top-k needs limit = local in form=official. Where they differ the official code also unmasks, for those
  rows, the keys between the two with a logit of 0 (or the sum of both), which is no distance at all.
- form=infllm with top-k is no published code: the same rule on top of that form's sinks.
- Grouped heads: the official code knows none. Each query head scores the keys of its KV head.
"""

from dataclasses import dataclass

import numpy as np

from common import frequencies, rotate, softmax
from golden import Result, Row


@dataclass
class Options:
    sinks: int  # S, --attn calls it global
    local: int  # w
    limit: int = 0  # distance of the sinks in form=official
    top_k: int = 0  # k
    top_k_from: int = 0  # first layer of the top-k
    top_k_at: int = 0  # p
    form: str = "official"  # or "infllm"
    base: float = 10000.0  # RoPE base

    def __post_init__(self):
        assert self.local >= 1 and self.form in ("official", "infllm")
        assert self.form == "infllm" or self.limit >= 1
        assert self.form == "infllm" or self.top_k == 0 or self.limit == self.local


def call_ends(n, calls):
    """For every token the end of the call that fed it; what the calls leave over is decoded."""
    ends = []
    for length in calls:
        ends += [len(ends) + length] * length
    return ends + [i + 1 for i in range(len(ends), n)]


def sink_distance(end, options):
    return options.local - 1 if options.form == "infllm" else min(options.limit, end - 1)


def local_and_sinks(i, end, options):
    """[(key, distance)], ascending by key."""
    keys = []
    for j in range(i + 1):
        if i - j < options.local:
            keys.append((j, i - j))
        elif j < options.sinks:
            keys.append((j, sink_distance(end, options)))
    return keys


def middle_of(i, end, layer, options):
    """The tokens among which row i chooses; empty where it does not choose."""
    middle = range(options.sinks, end - options.local)
    active = options.top_k > 0 and layer >= options.top_k_from
    return middle if active and i == end - 1 and len(middle) >= options.top_k else range(0)


def choose(scores, count):
    """Indices of the largest scores, of equal ones the lower first; and how far the last one taken is above
    the best one left out, relative to the largest |score|."""
    order = sorted(range(len(scores)), key=lambda at: (-scores[at], at))
    taken, left = order[:count], order[count:]
    gap = np.inf
    if taken and left:
        largest = np.abs(scores).max()
        gap = float((scores[taken[-1]] - scores[left[0]]) / largest) if largest > 0 else 0.0
    return sorted(taken), gap


def lm_infinite(q, k, v, options, calls=None, layer=0):
    """q: [n, H, d]; k, v: [n, H_kv, d]; unrotated, in the half-split layout. calls: lengths of the prefill's
    calls, by default one for all tokens; tokens after them are decoded."""
    n, n_heads, head_dim = q.shape
    group = n_heads // k.shape[1]
    theta, tau = frequencies(head_dim, options.base), 1.0 / np.sqrt(head_dim)
    result = Result(np.zeros((n, n_heads, head_dim)), [])
    for i, end in enumerate(call_ends(n, [n] if calls is None else calls)):
        near = local_and_sinks(i, end, options)
        seen = [j for j, _ in near]
        k_near = rotate(k[seen], np.array([[-d] for _, d in near]), theta)
        middle = middle_of(i, end, layer, options)
        k_middle = rotate(k[list(middle)], -float(options.top_k_at), theta)
        result.rows.append([])
        for head in range(n_heads):
            kv = head // group
            logits, scores = tau * k_near[:, kv] @ q[i, head], tau * k_middle[:, kv] @ q[i, head]
            chosen, gap = choose(scores, options.top_k) if middle else ([], np.inf)
            logits = np.concatenate([logits, scores[chosen]])
            result.out[i, head] = softmax(logits) @ v[seen + [middle[at] for at in chosen], kv]
            keys = near + [(middle[at], options.top_k_at) for at in chosen] if chosen else near
            result.rows[i].append(Row(keys, tau, gap, float(np.abs(logits).max())))
    return result
