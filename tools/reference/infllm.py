"""InfLLM written down naively in float64: one query at a time, explicit lists of tokens for every part.

Of the tokens fed so far, the oldest that have left the local window for good are absorbed: first n_init of
them become the initial tokens I, then every bs = block more become a block. What is not absorbed is the
remainder. Queries are fed in exec blocks [t0, t1) of at most e = exec_block tokens, which are cut inside each
call of the model: a call of c tokens gives floor(c/e) blocks of e and one of c mod e; a decoded token is a
block of one.

Query i of an exec block attends, in one softmax, to
  local  0 <= i - j < n_local at the true distance
  far    I, the tokens of the chosen blocks, and the remainder's tokens with i - j >= n_local; all at the
         constant distance n_local - 1
Blocks are chosen once for the exec block, among those that exist when it begins: all of them if there are at
most top_k, else the top_k with the largest score. A score is the sum over the query heads (of one choice for
all, or of each head alone where per_head) of the mean over the exec block of R(n_local - 1) q, times the
block's vector; of equal ones the lower block. The block's vector for head h is the mean of the unrotated keys
of the `representatives` tokens of the block that have the largest z[h]; of equal ones the lower token.
z[h][j] sums the softmax probability that queries of head h gave to key j while it was local to them.

After an exec block, with r tokens in the remainder: if I is not full and r > n_local, the oldest
min(n_init - |I|, r - n_local) go to I; then, while r - bs >= n_local, the oldest bs become a block.

Choices:
- The far distance is n_local - 1, as in the code; the paper speaks of n_local.
- z sums probabilities, as in the code, and in full precision; the code sums in the model's type.
- The mean of representatives sums them in the order of the text, so that equal blocks have equal vectors.
- compat=all is the official code's double counting: its mask of the far part has no effect, so that every
  query of an exec block sees all remainder tokens up to t1 - n_local as far ones, and those that are local
  to it too count twice in the softmax (and in what z is divided by). Never a token of the future.
- What the device caches (its size, its order of eviction) changes no result.
"""

from dataclasses import dataclass

import numpy as np

from common import frequencies, rotate, softmax
from golden import Result, Row


@dataclass
class Options:
    n_init: int
    n_local: int
    block: int  # bs
    top_k: int
    representatives: int
    exec_block: int  # e
    per_head: bool = False
    compat: bool = False
    base: float = 10000.0  # RoPE base

    def __post_init__(self):
        assert 1 <= self.exec_block <= self.n_local, "a far key would be the query's own exec block's"
        assert 1 <= self.representatives <= self.block and self.n_init >= 0


def exec_blocks(n, calls, options):
    """[(t0, t1)]; what the calls leave over is decoded."""
    blocks, t0 = [], 0
    for length in list(calls) + [1] * (n - sum(calls)):
        end = t0 + length
        while t0 < end:
            t1 = min(t0 + options.exec_block, end)
            blocks.append((t0, t1))
            t0 = t1
    return blocks


def best(scores, count):
    """Indices of the largest scores, of equal ones the lower first; and how far the last one taken is above
    the best one left out, relative to the largest |score|."""
    order = sorted(range(len(scores)), key=lambda at: (-scores[at], at))
    taken, left = order[:count], order[count:]
    if not taken or not left:
        return sorted(taken), np.inf
    largest = np.abs(scores).max()
    return sorted(taken), float((scores[taken[-1]] - scores[left[0]]) / largest) if largest > 0 else 0.0


@dataclass
class Memory:
    """What was absorbed, and what the absorbing of more needs."""

    init: list  # tokens
    blocks: list  # [tokens]
    vectors: list  # of each block: [H, d]
    remainder: list  # tokens
    z: np.ndarray  # [H, n]


def choose_blocks(q_block, memory, options, theta):
    """For each head the chosen blocks, and the gap. q_block: [t1 - t0, H, d], unrotated."""
    n_heads = q_block.shape[1]
    if len(memory.blocks) <= options.top_k:
        return [(list(range(len(memory.blocks))), np.inf)] * n_heads
    query = rotate(q_block, float(options.n_local - 1), theta).mean(axis=0)
    scores = np.array([(query * vector).sum(axis=-1) for vector in memory.vectors])  # [blocks, H]
    if options.per_head:
        return [best(scores[:, head], options.top_k) for head in range(n_heads)]
    return [best(scores.sum(axis=1), options.top_k)] * n_heads


def is_local(i, j, options):
    return 0 <= i - j < options.n_local


def far_remainder(i, t1, memory, options):
    """Tokens of the remainder that query i sees as far ones."""
    end = t1 if options.compat else i + 1
    return [j for j in memory.remainder if j < end - options.n_local]


def block_vector(tokens, k, memory, options):
    """[H, d], and the gaps of the choices."""
    n_heads, group = len(memory.z), len(memory.z) // k.shape[1]
    vector, gaps = np.zeros((n_heads, k.shape[2])), []
    for head in range(n_heads):
        chosen, gap = best(memory.z[head, tokens], options.representatives)
        vector[head] = k[[tokens[at] for at in chosen], head // group].mean(axis=0)
        gaps.append(gap)
    return vector, gaps


def absorb(k, memory, options):
    """What happens after an exec block. Returns the gaps of the choices of representatives."""
    gaps, missing = [], options.n_init - len(memory.init)
    if missing > 0 and len(memory.remainder) > options.n_local:
        count = min(missing, len(memory.remainder) - options.n_local)
        memory.init += memory.remainder[:count]
        memory.remainder = memory.remainder[count:]
    while len(memory.remainder) - options.block >= options.n_local:
        tokens, memory.remainder = memory.remainder[: options.block], memory.remainder[options.block :]
        vector, block_gaps = block_vector(tokens, k, memory, options)
        memory.blocks.append(tokens)
        memory.vectors.append(vector)
        gaps += block_gaps
    return gaps


def infllm(q, k, v, options, calls=None):
    """q: [n, H, d]; k, v: [n, H_kv, d]; unrotated, in the half-split layout. calls: lengths of the prefill's
    calls, by default one for all tokens; tokens after them are decoded."""
    n, n_heads, head_dim = q.shape
    group = n_heads // k.shape[1]
    theta, tau = frequencies(head_dim, options.base), 1.0 / np.sqrt(head_dim)
    k_far = rotate(k, -float(options.n_local - 1), theta)
    memory = Memory([], [], [], [], np.zeros((n_heads, n)))
    result = Result(np.zeros((n, n_heads, head_dim)), [])
    for t0, t1 in exec_blocks(n, [n] if calls is None else calls, options):
        chosen = choose_blocks(q[t0:t1], memory, options, theta)
        memory.remainder += range(t0, t1)
        given = np.zeros_like(memory.z)
        for i in range(t0, t1):
            local = [j for j in range(i + 1) if is_local(i, j, options)]
            k_local = rotate(k[local], np.array([[-float(i - j)] for j in local]), theta)
            rest = memory.init + far_remainder(i, t1, memory, options)
            near = [(j, i - j) for j in local]
            far_of, keys_of = {}, {}  # by the chosen blocks, which most heads share
            for blocks in {tuple(blocks) for blocks, _ in chosen}:
                far = rest + [j for block in blocks for j in memory.blocks[block]]
                far_of[blocks], keys_of[blocks] = far, near + [(j, options.n_local - 1) for j in far]
            result.rows.append([])
            for head, (blocks, gap) in enumerate(chosen):
                kv, far = head // group, far_of[tuple(blocks)]
                logits = tau * np.concatenate([k_local[:, kv], k_far[far, kv]]) @ q[i, head]
                probabilities = softmax(logits)
                result.out[i, head] = probabilities @ v[local + far, kv]
                given[head, local] += probabilities[: len(local)]
                result.rows[i].append(Row(keys_of[tuple(blocks)], tau, gap, float(np.abs(logits).max())))
        memory.z += given
        result.gaps += absorb(k, memory, options)
    return result
