"""Landmark attention written down naively: float64, one query at a time, an explicit position for every key.

A text of blocks of `block` tokens, the last of each being its landmark, is processed in windows. A query sees
its own block, causally, the earlier blocks of its window, and top_k of the blocks before the window (the
cached ones), those whose landmark keys meet it best. This is the reference that the engine is compared with;
it knows nothing of planes, parts or merging.

Positions. Queries and the keys of the window are where they are. The F tokens of cached blocks shrink to
k + 1 slots of one block each, which end where the window begins: with prefix = F - (k + 1) block, slot s
begins at prefix + s block. A retrieved block of rank r among the k (ascending) takes slot r if it is not
among the last k cached blocks, otherwise slot r + 1. While they compete, the landmarks of the last k cached
blocks are at their true positions, and those of all older blocks share slot 0.

Weights. The own block's tokens and the landmarks of all visible other blocks share one softmax, group 0; the
ordinary tokens of each other block have one of their own, times the probability of their landmark in group 0.
Landmarks have no value; that of the own block, which only it could see, is masked for itself too.

What the sources leave open or tell in two ways is settled thus:
- Windows are cut inside each call of the model, from its first token, and have as many tokens as leave room
  for the k + 1 slots in the trained window. `calls` holds the lengths of the prefill's calls, by default one.
  A window that begins inside a block ends with it at the latest (the published code fails there when it would
  not); the open block's earlier tokens belong to it. A decoded token is a window.
- Every query head of every token retrieves for itself. (With the cache offloaded, the published code
  retrieves once for a window.) k = min(top_k, cached blocks).
- Grouped queries, which the published code lacks: every query head with its key/value head.
- Any number of landmarks may be visible. (The published code is wrong from 64 on.)
- Equal scores: the lower block first.

A query's pairs hold the landmarks of other blocks like their tokens; the softmax groups are not told.
"""

from dataclasses import dataclass

import numpy as np

from common import frequencies, rotate, softmax
from golden import Result, Row


@dataclass
class Options:
    trained_window: int
    block: int = 51
    top_k: int = 5
    base: float = 10000.0  # RoPE base

    def __post_init__(self):
        assert self.block >= 2 and self.top_k >= 0
        assert self.window >= self.block, "the slots leave no room for a window"

    @property
    def window(self):
        whole_blocks = self.trained_window - self.trained_window % self.block
        return whole_blocks - (self.top_k + 1) * self.block


def windows_of(n, n_prefill, calls, options):
    """[(first token, one past the last)] of every window."""
    calls = [n_prefill] if calls is None else calls
    assert sum(calls) == n_prefill
    windows, begin = [], 0
    for length in list(calls) + [1] * (n - n_prefill):
        end = begin + length
        while begin < end:
            inside = begin % options.block
            most = options.block - inside if inside > 0 else options.window
            windows.append((begin, min(begin + most, end)))
            begin = windows[-1][1]
    return windows


def competing_slot(block, n_cached, k):
    """The slot of a cached block's landmark while it is scored."""
    oldest_of_last = n_cached - k
    return block - oldest_of_last + 1 if block >= oldest_of_last else 0


def slots_of(chosen, n_cached, k):
    """The slots that the chosen blocks (ascending) take."""
    return [rank if block < n_cached - k else rank + 1 for rank, block in enumerate(chosen)]


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


def retrieved(q, k, i, n_cached, options, theta):
    """{block: position of its first token} of the blocks that a query at i retrieves, and the gap. q: [d],
    k: [n, d] of its KV head."""
    block = options.block
    count = min(options.top_k, n_cached)
    prefix = n_cached * block - (count + 1) * block
    tau = 1.0 / np.sqrt(len(q))
    slots = np.array([competing_slot(b, n_cached, count) for b in range(n_cached)], dtype=np.int64)
    landmark_keys = rotate(k[block - 1 : n_cached * block : block], prefix + slots * block + block - 1, theta)
    # Products one by one: a matrix product does not promise equal ones for equal keys, and ties hang on it.
    scores = tau * (rotate(q, i, theta) * landmark_keys).sum(axis=1)
    taken, gap = best(dict(enumerate(scores.tolist())), count)
    chosen = sorted(taken)
    slots = slots_of(chosen, n_cached, count)
    return {b: prefix + slot * block for b, slot in zip(chosen, slots)}, gap


def own_tokens(i, options):
    """The tokens of its own block that query i sees: never the landmark, not even itself."""
    begin = i - i % options.block
    return list(range(begin, min(i + 1, begin + options.block - 1)))


def weights(logits_own, logits_blocks):
    """Of the own tokens, and of each block's tokens, the landmark last. logits_blocks: [blocks, block]."""
    group_zero = np.concatenate([logits_own, [logits[-1] for logits in logits_blocks]])
    probabilities = softmax(group_zero)
    blocks = [
        np.append(probability * softmax(logits[:-1]), 0.0)
        for probability, logits in zip(probabilities[len(logits_own) :], logits_blocks)
    ]
    return probabilities[: len(logits_own)], blocks


def landmark(q, k, v, options, landmarks, n_prefill=None, calls=None):
    """Landmark attention of one layer. q: [n, H, d]; k, v: [n, H_kv, d], unrotated. landmarks: the
    positions of the landmark tokens, which must be the last of every block. The first n_prefill tokens
    (default: all) are prefilled in calls of the given lengths, the others decoded."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    n, n_heads, head_dim = q.shape
    group, block = n_heads // k.shape[1], options.block
    n_prefill = n if n_prefill is None else n_prefill
    assert list(landmarks) == list(range(block - 1, n, block)), "landmarks must end the blocks"
    tau, theta = 1.0 / np.sqrt(head_dim), frequencies(head_dim, options.base)
    result = Result(np.zeros((n, n_heads, head_dim)), [])

    for begin, end in windows_of(n, n_prefill, calls, options):
        n_cached = begin // block
        for i in range(begin, end):
            result.rows.append([])
            for head in range(n_heads):
                kv = head // group
                first_position, gap = retrieved(q[i, head], k[:, kv], i, n_cached, options, theta)
                first_position |= {b: b * block for b in range(n_cached, i // block)}
                blocks, own = sorted(first_position), own_tokens(i, options)
                keys, positions = [], []
                for b in blocks:
                    keys += range(b * block, (b + 1) * block)
                    positions += range(first_position[b], first_position[b] + block)
                keys, positions = keys + own, np.array(positions + own, dtype=np.float64)
                logits = tau * rotate(k[keys, kv], positions, theta) @ rotate(q[i, head], i, theta)
                of_own, of_blocks = weights(
                    logits[len(blocks) * block :], logits[: len(blocks) * block].reshape(-1, block)
                )
                result.out[i, head] = np.concatenate([*of_blocks, of_own]) @ v[keys, kv]
                attended = [(j, i - int(position)) for j, position in zip(keys, positions)]
                result.rows[i].append(Row(attended, tau, gap, float(np.abs(logits).max())))
    return result
