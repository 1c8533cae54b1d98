"""StreamingLLM written down naively in float64: one query at a time, an explicit position for every key.

S = start (sink tokens), R = recent. One softmax over sinks and recent keys; nothing is chosen.

form=slots, the official token-by-token code. After each step the cache keeps the first S and the last R
tokens, and the next query comes on top: query i attends to every key while i <= S + R, then to j < S and to
0 <= i - j <= R, which is R + 1 keys with its own. Positions are cache slots: the query is at P = min(i, S+R),
recent key j at P - (i - j), sink j at j.

form=chunk-safe, InfLLM's version: query i attends to 0 <= i - j < R at the true distance, R keys with its
own, and to the sinks j < S with i - j >= R. Sinks are as if they lay immediately before the window: the query
at R + S - 1, sink j at j.

Choices:
- The rule of form=slots holds for a prompt too: prefill row = decode step. The official demo feeds a prompt
  in one call without a window, all of it causal on top of what the cache holds; a prompt longer than the
  cache then runs past S + R, which is the failure that the method is there to avoid.
- Neither form knows calls: InfLLM's version drops tokens from its cache between calls, but never one that a
  later query would see.
"""

from dataclasses import dataclass

import numpy as np

from common import frequencies, rotate, softmax
from golden import Result, Row


@dataclass
class Options:
    start: int  # S
    recent: int  # R
    form: str = "slots"  # or "chunk-safe"
    base: float = 10000.0  # RoPE base

    def __post_init__(self):
        assert self.start >= 0 and self.recent >= 1 and self.form in ("slots", "chunk-safe")


def slots(i, options):
    """(position of the query, {key: its position}) as the cache lies when token i is fed."""
    query = min(i, options.start + options.recent)
    table = {j: j for j in range(min(options.start, i + 1))}
    for j in range(max(i - options.recent, 0), i + 1):
        table[j] = query - (i - j)
    return query, table


def chunk_safe(i, options):
    """The distances {key: distance}."""
    query_for_sinks = options.recent + options.start - 1
    table = {j: i - j for j in range(max(i - options.recent + 1, 0), i + 1)}
    for j in range(min(options.start, i + 1)):
        if i - j >= options.recent:
            table[j] = query_for_sinks - j
    return table


def attended(i, options):
    """[(key, distance)], ascending by key."""
    if options.form == "chunk-safe":
        return sorted(chunk_safe(i, options).items())
    query, table = slots(i, options)
    return [(j, query - position) for j, position in sorted(table.items())]


def streaming_llm(q, k, v, options):
    """q: [n, H, d]; k, v: [n, H_kv, d]; unrotated, in the half-split layout."""
    n, n_heads, head_dim = q.shape
    n_kv_heads = k.shape[1]
    theta, scale = frequencies(head_dim, options.base), 1.0 / np.sqrt(head_dim)
    result = Result(np.zeros((n, n_heads, head_dim)), [])
    for i in range(n):
        keys = attended(i, options)
        seen = [j for j, _ in keys]
        k_rotated = rotate(k[seen], np.array([[-d] for _, d in keys]), theta)
        grouped = q[i].reshape(n_kv_heads, n_heads // n_kv_heads, head_dim)
        logits = scale * np.einsum("mkd,kgd->kgm", k_rotated, grouped)
        result.out[i] = np.einsum("kgm,mkd->kgd", softmax(logits), v[seen]).reshape(n_heads, head_dim)
        largest = np.abs(logits).max(axis=-1).ravel()
        result.rows.append([Row(keys, scale, max_logit=float(x)) for x in largest])
    return result
