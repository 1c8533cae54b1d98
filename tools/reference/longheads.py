"""LongHeads written down naively: float64, one query at a time, an explicit position for every key.

This is the reference that the engine is compared with. It follows the definition (chunk representations in
value space; forced first, previous and current chunk; remapped slots) and nothing else: no blocks, no key
planes, no merging.

The ablations of the paper's Table 4 are options. The paper names them and defines few of them, so this is
what they mean here:
- represent: what stands for a chunk. `paper` as above; `mean`, the mean of its chunk-locally rotated keys;
  `last`, the last of them. (Neither of the two is the paper's; both are what one would try first.)
- choose: how the free slots are filled. `top`, the largest scores; `last-k`, the smallest; `random-keep`, at
  random, the first, previous and own chunk kept (the paper's "Random P\\{C1,C-1}"); `random`, all but the own
  chunk at random among those before it ("Random P"). The own chunk stays, since the query's position lies in
  it and nobody would be at distance 0 otherwise; in the published code's decoding it is never a choice
  either.
- first=off: chunk 0 is neither forced nor a candidate ("w/o C1"); its slot goes to one more free choice.
- fix=head: one choice for all heads of a layer, by the sum of all heads' scores; fix=layer: every head keeps
  the choice it makes in layer 0; fix=both: one choice, that of all heads in layer 0.

Random choices are a function of (seed, layer, chooser, token): see draw(). The chooser is the query head, the
KV head with select=kv, 0 with fix=head; the layer is 0 with fix=layer.

Symbols: l = chunk length, K = number of slots, A = K*l = attention window, B = begin, c = i // l, o = i % l,
g = query heads of one KV head, tau = 1/sqrt(d). Vectors are in the half-split layout of Hugging Face weights.
"""

from dataclasses import dataclass, field

import numpy as np

from common import frequencies, rotate, softmax

COMPAT = ("own-key", "chunk-end", "begin")
MASK = 2**64 - 1


@dataclass
class Options:
    chunk: int  # l
    window: int  # A = K*l, a multiple of l
    begin: int  # B, a multiple of l; queries i < B attend to everything
    reps: str = "head"  # one representation per query "head", or per "kv" head (O averaged over its group)
    select: str = "head"  # each query "head" chooses, or the "kv" group by the sum of its heads' scores
    compat: frozenset = frozenset()  # oddities of the official code, names of COMPAT
    base: float = 10000.0  # RoPE base
    amplitude: float = 1.0  # of rotated queries and keys: schedules as YaRN lengthen them
    represent: str = "paper"
    choose: str = "top"
    first: str = "on"
    fix: str = "none"
    seed: int = 0  # of random choices

    def __post_init__(self):
        self.compat = frozenset(self.compat)
        assert self.window % self.chunk == 0 and self.begin % self.chunk == 0
        assert self.window // self.chunk >= 3, "first, previous and current chunk need three slots"
        assert self.reps in ("head", "kv") and self.select in ("head", "kv")
        assert self.compat <= set(COMPAT)
        assert self.represent in ("paper", "mean", "last") and self.first in ("on", "off")
        assert self.choose in ("top", "random", "random-keep", "last-k")
        assert self.fix in ("none", "head", "layer", "both")


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
            k_local = options.amplitude * rotate(k[tokens, kv], offsets, theta)
            if options.represent != "paper":
                reps[chunk, heads] = k_local.mean(axis=0) if options.represent == "mean" else k_local[-1]
                continue
            qc = [
                chunk_mean(options.amplitude * rotate(q[tokens, head], offsets, theta), k_local, v[tokens, kv])
                for head in heads
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


def worst(scores, count):
    """The chunks with the smallest scores, and the gap, as best()."""
    return best({chunk: -score for chunk, score in scores.items()}, count)


def finalise(z):
    """SplitMix64's output function."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def draw(candidates, count, seed, layer, chooser, token):
    """`count` of the candidates (ascending), each subset equally likely, all of them if there are no more.

    The state starts at `seed`; for x = layer, chooser, token in turn, state = finalise(state + (x + 1) *
    0x9E3779B97F4A7C15). From there finalise(state + t * 0x9E3779B97F4A7C15), t = 1, 2, ..., are SplitMix64's
    numbers, all modulo 2^64. Floyd's sampling takes one number r for each place: for
    top = m - count, ..., m - 1 (m candidates) the candidate of index r mod (top + 1), or of index top if that
    one is taken.
    """
    gamma = 0x9E3779B97F4A7C15
    state = seed
    for x in (layer, chooser, token):
        state = finalise((state + (x + 1) * gamma) & MASK)
    candidates = list(candidates)
    taken = set()
    for top in range(max(len(candidates) - count, 0), len(candidates)):
        state = (state + gamma) & MASK
        index = finalise(state) % (top + 1)
        taken.add(top if index in taken else index)
    return [candidates[index] for index in sorted(taken)]


def closes_a_chunk(i, decoding, options):
    return decoding and "chunk-end" in options.compat and (i + 1) % options.chunk == 0


def forced_and_free(i, decoding, options):
    """Chunks that query i always sees, and the candidates among which the other slots are filled."""
    c = i // options.chunk
    first = {0} if options.first == "on" else set()
    if options.choose == "random":
        return {c}, range(0 if options.first == "on" else 1, c)
    if closes_a_chunk(i, decoding, options):
        # The chunk that just closed counts as the last full one, and there is no open chunk: K-1 slots are
        # used.
        return first | {c}, range(1, c)
    return first | {max(c - 1, 0), c}, range(1, c - 1)


def free_slots(i, decoding, options):
    """How many chunks are chosen beside the forced ones, where there are enough."""
    closes = closes_a_chunk(i, decoding, options)
    forced = 1 if options.choose == "random" else 2 - closes + (options.first == "on")
    return options.window // options.chunk - closes - forced


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


def chosen_free(i, head, decoding, options, group, layer, q, reps):
    """The free chunks of query (i, head), and the gap. q and reps: of the layer that chooses."""
    _, candidates = forced_and_free(i, decoding, options)
    count = free_slots(i, decoding, options)
    kv = head // group
    if options.fix in ("head", "both"):
        chooser, voters = 0, range(q.shape[1])
    elif options.select == "kv":
        chooser, voters = kv, range(kv * group, (kv + 1) * group)
    else:
        chooser, voters = head, [head]
    if options.choose.startswith("random"):
        layer = 0 if options.fix in ("layer", "both") else layer
        return draw(candidates, count, options.seed, layer, chooser, i), np.inf
    scores = scores_of(q[i], {chunk: reps[chunk] for chunk in candidates}, voters)
    return (worst if options.choose == "last-k" else best)(scores, count)


def longheads(q, k, v, options, n_prefill=None, layer=0, first_layer=None):
    """LongHeads attention of one layer. q: [n, H, d]; k, v: [n, H_kv, d], unrotated. The first n_prefill
    tokens (default: all) are prefilled, the others decoded; only `compat` can tell the phases apart.
    first_layer: the (q, k, v) of layer 0, which fix=layer and fix=both need in the others."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    n, n_heads, head_dim = q.shape
    group = n_heads // k.shape[1]
    n_prefill = n if n_prefill is None else n_prefill
    tau, theta = 1.0 / np.sqrt(head_dim), frequencies(head_dim, options.base)
    chooser_inputs = (q, k, v)
    if options.fix in ("layer", "both") and layer > 0 and not options.choose.startswith("random"):
        chooser_inputs = tuple(np.asarray(x, dtype=np.float64) for x in first_layer)
    reps = all_representations(*chooser_inputs, options, theta)
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
                forced, _ = forced_and_free(i, decoding, options)
                free, gap = chosen_free(i, head, decoding, options, group, layer, chooser_inputs[0], reps)
                chunks = sorted(forced | set(free))
                table, query_position = positions_of(chunks, i, options.chunk)
                if "own-key" in options.compat and not decoding:
                    del table[i]
            keys = sorted(table)
            positions = np.array([table[j] for j in keys], dtype=np.float64)
            q_rotated = options.amplitude * rotate(q[i, head], query_position, theta)
            logits = tau * options.amplitude * rotate(k[keys, kv], positions, theta) @ q_rotated
            result.out[i, head] = softmax(logits) @ v[keys, kv]
            attended = [(j, query_position - table[j]) for j in keys]
            result.rows[i].append(Row(chunks, attended, gap, float(np.abs(logits).max())))
    return result
