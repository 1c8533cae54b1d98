"""MoBA written down naively: float64, one query at a time, an explicit position for every key.

A prompt token attends to its own block, causally, and to the top_k - 1 earlier blocks whose mean key meets
its query best; every query head chooses for itself. Distances stay i - j. This is the reference that the
engine is compared with; it knows nothing of planes, blocks of execution or merging.

What the sources leave open or tell in two ways is settled thus:
- Every prompt token is gated, however the prompt is split into calls. (The published code gates only a call
  whose queries and keys agree in length, that is the first one.)
- Decoded tokens attend to everything (decode=full: the paper and the published code), or are gated like
  prompt tokens (decode=gated).
- The mean is that of the keys rotated to their positions, and meets the rotated query. All earlier blocks are
  complete, so the means of incomplete blocks never matter.
- top_k counts the own block, which is always seen.
- Grouped queries: every query head chooses for itself, among the means of its key/value head.
- Equal scores: the lower block first.
"""

from dataclasses import dataclass

import numpy as np

from common import frequencies, rotate, softmax
from golden import Result, Row


@dataclass
class Options:
    chunk: int = 4096  # length of a block
    top_k: int = 12  # blocks seen, the own one included
    decode: str = "full"
    base: float = 10000.0  # RoPE base

    def __post_init__(self):
        assert self.decode in ("full", "gated") and self.chunk >= 1 and self.top_k >= 1


def gate(q_rotated, block_keys):
    """The score of a block. block_keys: [chunk, d]."""
    return float((q_rotated * block_keys.mean(axis=0)).sum())


def best(scores, count):
    """The `count` blocks with the largest scores, of equal ones the lower first; and the gap to the best one
    left out. scores: {block: score}."""
    order = sorted(scores, key=lambda block: (-scores[block], block))
    taken, left = order[:count], order[count:]
    gap = np.inf
    if taken and left:
        largest = max(abs(score) for score in scores.values())
        gap = (scores[taken[-1]] - scores[left[0]]) / largest if largest > 0 else 0.0
    return taken, gap


def chosen_blocks(q_rotated, k_rotated, i, options):
    """The blocks that query i sees, ascending, and the gap of the choice. k_rotated: [n, d] of its KV
    head."""
    own = i // options.chunk
    scores = {
        block: gate(q_rotated, k_rotated[block * options.chunk : (block + 1) * options.chunk])
        for block in range(own)
    }
    taken, gap = best(scores, options.top_k - 1)
    return sorted(taken) + [own], gap


def tokens_of(blocks, i, options):
    return [
        j for block in blocks for j in range(block * options.chunk, (block + 1) * options.chunk) if j <= i
    ]


def moba(q, k, v, options, n_prefill):
    """MoBA attention of one layer. q: [n, H, d]; k, v: [n, H_kv, d], unrotated. The first n_prefill tokens
    are prefilled, the others decoded."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    n, n_heads, head_dim = q.shape
    group = n_heads // k.shape[1]
    tau, theta = 1.0 / np.sqrt(head_dim), frequencies(head_dim, options.base)
    positions = np.arange(n)[:, None]  # every key and query stands where it is
    q_rotated, k_rotated = rotate(q, positions, theta), rotate(k, positions, theta)
    result = Result(np.zeros((n, n_heads, head_dim)), [])

    for i in range(n):
        full = i >= n_prefill and options.decode == "full"
        result.rows.append([])
        for head in range(n_heads):
            kv = head // group
            gap, keys = np.inf, list(range(i + 1))
            if not full:
                blocks, gap = chosen_blocks(q_rotated[i, head], k_rotated[:, kv], i, options)
                keys = tokens_of(blocks, i, options)
            logits = tau * k_rotated[keys, kv] @ q_rotated[i, head]
            result.out[i, head] = softmax(logits) @ v[keys, kv]
            attended = [(j, i - j) for j in keys]
            result.rows[i].append(Row(attended, tau, gap, float(np.abs(logits).max())))
    return result
