"""Quest written down naively: float64, one query at a time, an explicit position for every key.

Pages of `page` tokens carry the smallest and the largest value that each channel of their rotated keys takes.
A decoded token ranks the pages, each query head for itself, by the largest dot product that such a page could
hold, and attends to the tokens of the best ones. Distances stay i - j. This is the reference that the engine
is compared with; it knows nothing of planes, blocks or merging.

What the sources leave open or tell in two ways is settled thus:
- A token is prefilled or decoded by its place (before n_prefill or not). The published evaluation code takes
  any call of one token for decode; the twin does not look at calls.
- rule=kernel: the open page is always seen, the page of the token itself even where this token completes it,
  and (budget / page - 1) of the others are chosen; where all pages fit nothing is chosen.
- rule=evaluation: max(3, min(n, budget) / page) pages, no more than there are; the open page competes with
  the others by the bound over the keys it has, so a token can miss its own key.
- Grouped queries: every query head ranks for itself, against the pages of its key/value head.
- Equal bounds: the lower page first.
"""

from dataclasses import dataclass

import numpy as np

from common import frequencies, rotate, softmax
from golden import Result, Row


@dataclass
class Options:
    page: int = 16
    budget: int = 1024  # tokens that a decoded token attends to at most
    dense_layers: int = 2  # layers below this one attend to everything
    rule: str = "kernel"
    base: float = 10000.0  # RoPE base

    def __post_init__(self):
        assert self.rule in ("kernel", "evaluation")
        assert self.budget >= self.page >= 1 and self.dense_layers >= 0


def bound(q_rotated, page_keys):
    """The largest q.k that a key between the page's minima and maxima can reach. page_keys: [<= page, d]."""
    lowest, highest = page_keys.min(axis=0), page_keys.max(axis=0)
    return float(np.maximum(q_rotated * lowest, q_rotated * highest).sum())


def best(bounds, count):
    """The `count` pages with the largest bounds, of equal ones the lower page first; and the gap to the best
    one left out. bounds: {page: bound}."""
    order = sorted(bounds, key=lambda page: (-bounds[page], page))
    taken, left = order[:count], order[count:]
    gap = np.inf
    if taken and left:
        largest = max(abs(value) for value in bounds.values())
        gap = (bounds[taken[-1]] - bounds[left[0]]) / largest if largest > 0 else 0.0
    return taken, gap


def pages_by_kernel(bounds, i, options):
    open_page = i // options.page
    if len(bounds) <= options.budget // options.page:
        return list(bounds), np.inf
    others = {page: value for page, value in bounds.items() if page != open_page}
    taken, gap = best(others, options.budget // options.page - 1)
    return taken + [open_page], gap


def pages_by_evaluation(bounds, i, options):
    count = max(3, min(i + 1, options.budget) // options.page)
    return best(bounds, min(count, len(bounds)))


def chosen_pages(q_rotated, k_rotated, i, options):
    """The pages that query i sees, ascending, and the gap of the choice. k_rotated: [n, d] of its KV head."""
    bounds = {}
    for page in range(i // options.page + 1):
        seen = slice(page * options.page, min((page + 1) * options.page, i + 1))
        bounds[page] = bound(q_rotated, k_rotated[seen])
    rule = {"kernel": pages_by_kernel, "evaluation": pages_by_evaluation}[options.rule]
    taken, gap = rule(bounds, i, options)
    return sorted(taken), gap


def tokens_of(pages, i, options):
    return [j for page in pages for j in range(page * options.page, (page + 1) * options.page) if j <= i]


def quest(q, k, v, options, n_prefill, layer=None):
    """Quest attention of one layer. q: [n, H, d]; k, v: [n, H_kv, d], unrotated. The first n_prefill tokens
    are prefilled, the others decoded. layer: 0-based; by default the first that is not dense."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    n, n_heads, head_dim = q.shape
    group = n_heads // k.shape[1]
    layer = options.dense_layers if layer is None else layer
    tau, theta = 1.0 / np.sqrt(head_dim), frequencies(head_dim, options.base)
    positions = np.arange(n)[:, None]  # every key and query stands where it is
    q_rotated, k_rotated = rotate(q, positions, theta), rotate(k, positions, theta)
    result = Result(np.zeros((n, n_heads, head_dim)), [])

    for i in range(n):
        dense = i < n_prefill or layer < options.dense_layers
        result.rows.append([])
        for head in range(n_heads):
            kv = head // group
            gap, keys = np.inf, list(range(i + 1))
            if not dense:
                pages, gap = chosen_pages(q_rotated[i, head], k_rotated[:, kv], i, options)
                keys = tokens_of(pages, i, options)
            logits = tau * k_rotated[keys, kv] @ q_rotated[i, head]
            result.out[i, head] = softmax(logits) @ v[keys, kv]
            attended = [(j, i - j) for j in keys]
            result.rows[i].append(Row(attended, tau, gap, float(np.abs(logits).max())))
    return result
