"""LongHeads written down naively: float64, one query at a time, an explicit position for every key.

This is the reference that the engine is compared with. It follows the definition (chunk representations in
value space; forced first, previous and current chunk; remapped slots) and nothing else: no blocks, no key
planes, no merging.

Symbols: l = chunk length, K = number of slots, A = K*l = attention window, B = begin, c = i // l, o = i % l,
g = query heads of one KV head, tau = 1/sqrt(d). Vectors are in the half-split layout of Hugging Face weights.
"""

from dataclasses import dataclass, field

import numpy as np

from common import frequencies, rotate, softmax

COMPAT = ("own-key", "chunk-end", "begin")


@dataclass
class Options:
    chunk: int  # l
    window: int  # A = K*l, a multiple of l
    begin: int  # B, a multiple of l; queries i < B attend to everything
    reps: str = "head"  # one representation per query "head", or per "kv" head (O averaged over its group)
    select: str = "head"  # each query "head" chooses, or the "kv" group by the sum of its heads' scores
    compat: frozenset = frozenset()  # oddities of the official code, names of COMPAT
    base: float = 10000.0  # RoPE base

    def __post_init__(self):
        self.compat = frozenset(self.compat)
        assert self.window % self.chunk == 0 and self.begin % self.chunk == 0
        assert self.window // self.chunk >= 3, "first, previous and current chunk need three slots"
        assert self.reps in ("head", "kv") and self.select in ("head", "kv")
        assert self.compat <= set(COMPAT)


@dataclass
class Row:
    """What one query (i, h) attended to."""

    chunks: list  # ascending; every chunk 0..c where attention is full
    keys: list  # [(key, distance)], ascending by key
    # Score of the last free chunk taken minus that of the best one left, relative to the largest |score|.
    gap: float = np.inf
    max_logit: float = 0.0  # largest |tau * q.k| seen


@dataclass
class Result:
    out: np.ndarray  # [n, H, d]
    rows: list = field(default_factory=list)  # rows[i][h]: Row


def chunk_mean(q_local, k_local, v):
    """qc, a vector in value space: the mean row of O = softmax(tau * Qh Kh^T) V, unmasked inside the chunk.
    All [l, d]."""
    tau = 1.0 / np.sqrt(k_local.shape[-1])
    return (softmax(tau * q_local @ k_local.T) @ v).mean(axis=0)


def representation(qc, k_local):
    """c = sum_j w_j kh_j with w = softmax(tau * qc . kh_j), in chunk-local rotated key space. qc [d],
    k_local [l, d]."""
    tau = 1.0 / np.sqrt(k_local.shape[-1])
    return softmax(tau * k_local @ qc) @ k_local


def all_representations(q, k, v, options, theta):
    """[n // l, H, d]: the representation of every complete chunk as each query head sees it."""
    n, n_heads, head_dim = q.shape
    n_kv_heads = k.shape[1]
    group = n_heads // n_kv_heads
    offsets = np.arange(options.chunk)
    reps = np.zeros((n // options.chunk, n_heads, head_dim))
    for chunk in range(len(reps)):
        tokens = slice(chunk * options.chunk, (chunk + 1) * options.chunk)
        for kv in range(n_kv_heads):
            heads = range(kv * group, (kv + 1) * group)
            k_local = rotate(k[tokens, kv], offsets, theta)
            qc = [
                chunk_mean(rotate(q[tokens, head], offsets, theta), k_local, v[tokens, kv]) for head in heads
            ]
            if options.reps == "kv":
                qc = [sum(qc) / group] * group
            for head, mean in zip(heads, qc):
                reps[chunk, head] = representation(mean, k_local)
    return reps


def scores_of(q_row, reps, heads):
    """{chunk: score} summed over the given query heads. q_row: [H, d] unrotated; reps: {chunk: [H, d]}."""
    return {
        chunk: float(sum((q_row[head] * rep[head]).sum() for head in heads)) for chunk, rep in reps.items()
    }


def best(scores, count):
    """The chunks with the largest scores; of equal ones the lower index first. Also the gap to the best one
    left out."""
    order = sorted(scores, key=lambda chunk: (-scores[chunk], chunk))
    taken, left = order[:count], order[count:]
    gap = np.inf
    if taken and left:
        largest = max(abs(score) for score in scores.values())
        gap = (scores[taken[-1]] - scores[left[0]]) / largest if largest > 0 else 0.0
    return taken, gap


def forced_and_free(i, decoding, options):
    """Chunks that query i always sees, and the candidates among which K-3 more are chosen."""
    c = i // options.chunk
    if decoding and "chunk-end" in options.compat and (i + 1) % options.chunk == 0:
        # The chunk that just closed counts as the last full one, and there is no open chunk: K-1 slots are
        # used.
        return {0, c}, range(1, c)
    return {0, max(c - 1, 0), c}, range(1, c - 1)


def positions_of(chunks, i, chunk):
    """Explicit position table: ({key: position}, position of the query) when `chunks` take the slots in
    ascending order."""
    table = {}
    for slot, c in enumerate(chunks):
        for j in range(c * chunk, min((c + 1) * chunk, i + 1)):
            table[j] = slot * chunk + j % chunk
    return table, (len(chunks) - 1) * chunk + i % chunk


def attends_fully(i, decoding, options):
    if decoding and "begin" in options.compat:
        return i + 1 < options.begin
    return i < options.begin


def longheads(q, k, v, options, n_prefill=None):
    """LongHeads attention of one layer. q: [n, H, d]; k, v: [n, H_kv, d], unrotated. The first n_prefill
    tokens
    (default: all) are prefilled, the others decoded; only `compat` can tell the phases apart."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    n, n_heads, head_dim = q.shape
    group = n_heads // k.shape[1]
    n_prefill = n if n_prefill is None else n_prefill
    tau, theta = 1.0 / np.sqrt(head_dim), frequencies(head_dim, options.base)
    reps = all_representations(q, k, v, options, theta)
    result = Result(np.zeros((n, n_heads, head_dim)))

    for i in range(n):
        decoding = i >= n_prefill
        result.rows.append([])
        for head in range(n_heads):
            kv = head // group
            gap = np.inf
            if attends_fully(i, decoding, options):
                chunks = list(range(i // options.chunk + 1))
                table, query_position = {j: j for j in range(i + 1)}, i
            else:
                forced, candidates = forced_and_free(i, decoding, options)
                voters = [head] if options.select == "head" else range(kv * group, (kv + 1) * group)
                scores = scores_of(q[i], {chunk: reps[chunk] for chunk in candidates}, voters)
                free, gap = best(scores, options.window // options.chunk - 3)
                chunks = sorted(forced | set(free))
                table, query_position = positions_of(chunks, i, options.chunk)
                if "own-key" in options.compat and not decoding:
                    del table[i]
            keys = sorted(table)
            positions = np.array([table[j] for j in keys], dtype=np.float64)
            q_rotated = rotate(q[i, head], query_position, theta)
            logits = tau * rotate(k[keys, kv], positions, theta) @ q_rotated
            result.out[i, head] = softmax(logits) @ v[keys, kv]
            attended = [(j, query_position - table[j]) for j in keys]
            result.rows[i].append(Row(chunks, attended, gap, float(np.abs(logits).max())))
    return result
