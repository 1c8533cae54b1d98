"""ESA written down naively: float64, one chunk at a time, an explicit position for every key.

Tokens are processed in chunks. Of what precedes a chunk, the last n_local tokens stay local; of the others
the first n_init are always seen and the middle M competes: k tokens of it are seen, the same for all heads
and all queries of the chunk. Local keys and the chunk itself, causally, are at their true distance;
everything else is at the constant distance w = n_local. This is the reference that the engine is compared
with; it knows nothing of planes, rings or merging. There is no official code.

The importance of m in M for a query c is f(m; c), the sum over the query heads of q.k (no scale), with the
query rotated by w and the key unrotated: the pair as far attention sees it. Then

    s(m)  = max over c in the chunk of (f(m; c) - max over m' in M of f(m'; c))
    s'(m) = max of s over [m - eps, m + eps], within M

and the k tokens with the largest s' are taken, of equal ones those with the larger s, then the lower index.

What the paper leaves open is settled thus:
- Start: a chunk at t0 leaves r = max(0, t0 - n_local) tokens behind; the first min(n_init, r) are the initial
  ones, the rest is M. While r is 0, attention is full.
- Chunks are cut inside each call of the model, from its first token, the last one of a call may be shorter;
  a decoded token is a chunk. `calls` holds the lengths of the prefill's calls, by default one.
- w is n_local.
- Where M has no more than k tokens, all are seen.
- score=compressed: f(m; c) is (W_q q).(W_k k), where q holds, one KV head after the other, the sum of the
  heads' queries that share it, and k all KV heads; that is f exactly with W_q^T W_k = 1. No biases.
- share=individual: f(m; c) is the largest q.k of any head, not their sum. It cannot be compressed.
"""

from dataclasses import dataclass

import numpy as np

from common import frequencies, rotate, softmax
from golden import Result, Row


@dataclass
class Options:
    n_init: int = 128
    k: int = 2048  # tokens chosen
    n_local: int = 4096
    chunk: int = 512
    dim: int | None = None  # rows of the projections
    eps: int = 3  # reach of a token's proximity
    score: str = "exact"
    share: str = "sum"
    base: float = 10000.0  # RoPE base

    def __post_init__(self):
        assert self.score in ("compressed", "exact") and self.share in ("sum", "individual")
        assert self.score == "exact" or self.share == "sum", "one head's scores cannot be compressed"
        assert self.n_init >= 0 and self.k >= 1 and self.n_local >= 1 and self.chunk >= 1 and self.eps >= 0


def chunks_of(n, n_prefill, calls, chunk):
    """[(first token, one past the last)] of every chunk."""
    calls = [n_prefill] if calls is None else calls
    assert sum(calls) == n_prefill
    chunks, begin = [], 0
    for length in list(calls) + [1] * (n - n_prefill):
        end = begin + length
        chunks += [(t, min(t + chunk, end)) for t in range(begin, end, chunk)]
        begin = end
    return chunks


def parts_of(begin, options):
    """(end of the initial tokens, end of the middle) for a chunk at `begin`; its local keys begin there."""
    left_behind = max(0, begin - options.n_local)
    return min(options.n_init, left_behind), left_behind


def folded(q, n_kv_heads):
    """[..., H_kv * d]: for each KV head the sum of the queries that share it. q: [..., H, d]."""
    shape = q.shape[:-2] + (n_kv_heads, q.shape[-2] // n_kv_heads, q.shape[-1])
    return q.reshape(shape).sum(axis=-2).reshape(q.shape[:-2] + (-1,))


def products(x, y):
    """[len(x), len(y)]: x.y of every pair, equal vectors to the same last digit wherever they stand (a matrix
    product does not promise that, and ties hang on it)."""
    return (x[:, None] * y[None]).sum(axis=-1)


def importance(q_far, k, options, projections):
    """f: [queries, keys]. q_far: [queries, H, d] rotated by w; k: [keys, H_kv, d] unrotated."""
    n_heads, n_kv_heads = q_far.shape[1], k.shape[1]
    if options.score == "compressed":
        w_q, w_k = projections
        assert w_q.shape == w_k.shape == (options.dim, n_kv_heads * k.shape[2])
        return products(products(folded(q_far, n_kv_heads), w_q), products(k.reshape(len(k), -1), w_k))
    of_head = [products(q_far[:, head], k[:, head // (n_heads // n_kv_heads)]) for head in range(n_heads)]
    return sum(of_head) if options.share == "sum" else np.max(of_head, axis=0)


def relative_scores(f):
    """s: [keys]."""
    return (f - f.max(axis=1, keepdims=True)).max(axis=0)


def smoothed(s, eps):
    """s': [keys]."""
    return np.array([s[max(0, m - eps) : m + eps + 1].max() for m in range(len(s))])


def ranking(s, s_smooth):
    """Indices into M, best first."""
    return sorted(range(len(s)), key=lambda m: (-s_smooth[m], -s[m], m))


def gap_of(f, s, s_smooth, order, count):
    """How far from another choice the one of order[:count] is, relative to the largest |f|; 0 where an
    exact tie of the inputs decides.

    Pooling makes groups of equal s', and the best key of each query has s = 0 exactly, in any precision.
    Where the choice is made inside such a group, the group must keep its members, and s decides inside it.
    """
    largest = np.abs(f).max()
    if largest == 0:
        return 0.0
    taken, left = order[:count], order[count:]
    last, next_best = taken[-1], left[0]
    if s_smooth[last] > s_smooth[next_best]:
        return (s_smooth[last] - s_smooth[next_best]) / largest
    group = s_smooth[last]
    margins = [s_smooth[m] - group for m in taken if s_smooth[m] > group]
    margins += [group - s_smooth[m] for m in left if s_smooth[m] < group]
    if s[last] > s[next_best]:
        margins.append(s[last] - s[next_best])
    else:
        # Both are the best key of some query, and the index decides: no other key may come to be the best.
        two_best = np.sort(f, axis=1)[:, -2:]
        margins.append((two_best[:, 1] - two_best[:, 0]).min() if s[last] == 0 else 0.0)
    return min(margins) / largest


def chosen_tokens(q_far, k_middle, options, projections):
    """Indices into M, ascending, and the gap."""
    if len(k_middle) <= options.k:
        return list(range(len(k_middle))), np.inf
    f = importance(q_far, k_middle, options, projections)
    s = relative_scores(f)
    s_smooth = smoothed(s, options.eps)
    order = ranking(s, s_smooth)
    return sorted(order[: options.k]), gap_of(f, s, s_smooth, order, options.k)


def positions_of(i, init_end, middle_end, chosen, options):
    """Explicit position table {key: position} of query i, which is at position i."""
    far = list(range(init_end)) + chosen
    table = {j: i - options.n_local for j in far}
    table.update({j: j for j in range(middle_end, i + 1)})
    return table


def esa(q, k, v, options, n_prefill=None, calls=None, projections=None):
    """ESA attention of one layer. q: [n, H, d]; k, v: [n, H_kv, d], unrotated. The first n_prefill tokens
    (default: all) are prefilled in calls of the given lengths, the others decoded. projections: (W_q, W_k),
    both [dim, H_kv * d], for score=compressed."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    n, n_heads, head_dim = q.shape
    group = n_heads // k.shape[1]
    n_prefill = n if n_prefill is None else n_prefill
    tau, theta = 1.0 / np.sqrt(head_dim), frequencies(head_dim, options.base)
    result = Result(np.zeros((n, n_heads, head_dim)), [])

    for begin, end in chunks_of(n, n_prefill, calls, options.chunk):
        init_end, middle_end = parts_of(begin, options)
        q_far = rotate(q[begin:end], options.n_local, theta)
        chosen, gap = chosen_tokens(q_far, k[init_end:middle_end], options, projections)
        chosen = [init_end + m for m in chosen]
        result.gaps.append(gap)
        for i in range(begin, end):
            table = positions_of(i, init_end, middle_end, chosen, options)
            keys = sorted(table)
            positions = np.array([table[j] for j in keys], dtype=np.float64)
            k_rotated = rotate(k[keys], positions[:, None], theta)
            attended = [(j, i - table[j]) for j in keys]
            result.rows.append([])
            for head in range(n_heads):
                logits = tau * k_rotated[:, head // group] @ rotate(q[i, head], i, theta)
                result.out[i, head] = softmax(logits) @ v[keys, head // group]
                result.rows[i].append(Row(attended, tau, max_logit=float(np.abs(logits).max())))
    return result
