"""The goldens of the attention methods: how a naive twin's answer on known inputs is written down.

This docstring is the specification; manifests carry it as "format". A case is one method with its options on
one text in one layer.

MANIFEST (partN.json: {"format": [lines of this text], "cases": [...]}). Of a case:
  name            unique over all manifests; the arrays are NAME.sets.npy and so on, beside the manifest
  spec            the policy and its options, as --attn takes them
  frequencies     the schedule before them, "yarn:factor=4", or null for the model's own table
  trained_window  tokens the model says it was trained on; makes the spec legal
  base            RoPE base: theta_m = base^(-2m/d)
  heads, kv_heads, dim, n    H, H_kv, d, tokens; query head h uses KV head floor(h / (H / H_kv))
  seed, inputs, period, scales    the inputs, see below
  calls           lengths of the prefill's calls, in order, where the definition depends on them: run exactly
                  these. Null: any way to cut the prefill must give the same
  n_prefill       tokens in prefill, the sum of calls where there are any; the others are decoded one by one.
                  Null: no difference, run it both ways
  lengths         token counts to run: a run over the first m tokens has the first m rows of the golden. Only
                  [n] where calls matter
  unit            the least integer u such that every distance times u is an integer
  layer           index of the layer that the twin played, from 0
  extra           what this method needs beside its options (an object, mostly empty); the case's method says
                  what
  out_rows        [i, ...]: tokens whose outputs are in NAME.out
  attended_rows   [[i, h], ...]: queries whose pairs are in NAME.attended
  n_choices, n_ties    decisions that took some and left some, and how many of them were exact ties
  min_gap         over all choices that were not exact ties: (score of the last one taken - score of the best
                  one left out) / largest |score| of the choice; null without such choices. The cases are seeded
                  so that it is above 1e-4, and float32's rounding is about 1e-6: float32 must choose the same.
                  Ties are exact in any precision, by keys of 0 or equal blocks
  max_logit       largest |scale * q.k| of any attended pair, for deriving tolerances

A schedule with an amplitude a multiplies q and k by a wherever they are rotated: logits by its square.

INPUTS, float32, unrotated, in the half-split layout (pair m is (x[m], x[m + d/2])): permute q and k, never v,
for a kernel that works on interleaved pairs. q [n, H, d] = scales[0] * uniform("q", seed), k [n, H_kv, d] =
scales[1] * uniform("k", seed), v [n, H_kv, d] = scales[2] * uniform("v", seed), where uniform is that of
tools/reference/uniform.py; then, by "inputs":
  plain           as generated; period is null
  zero-keys       k is all zeros: scores of keys are exactly 0 and tie
  some-zero-keys  k is zero in every token t with floor(t / period) mod 3 != 0
  repeated        token t of q, k and v holds the generated token t mod period
  repeated-keys   the same for k alone

ARRAYS. A pair is (key, distance * unit), both int32; distance is the relative distance D of the logit
s(D) = scale * q^T R(-D) k. The pairs of a query are sorted by key, then by distance * unit, and a key that
counts twice in the softmax stands there twice.
  NAME.sets.npy        uint32 [n, H]: FNV-1a-32 of the pairs of query (i, h) as little-endian bytes, key first
  NAME.attended.npy    int32 [m, 4]: rows (i, h, key, distance * unit), for the queries in attended_rows, in
                       that order; for reading a difference that sets has shown
  NAME.out.npy         float32 [len(out_rows), H, d]: attention outputs
  NAME.projection.npy  float32 [n, H]: sum over x of out[i, h, x] * uniform("projection", 0)[x], so that every
                       output is covered

A logit scale that differs from 1/sqrt(d) is seen in the outputs only.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from uniform import uniform

KINDS = ("plain", "zero-keys", "some-zero-keys", "repeated", "repeated-keys")


@dataclass
class Row:
    """What one query (i, h) attended to."""

    keys: list  # [(key, distance)], in any order; a key that counts twice is there twice
    scale: float  # of the logit: 1/sqrt(d), or what the method makes of it
    gap: float = np.inf  # of the choice made for this query alone; infinite where there was none
    max_logit: float = 0.0  # largest |scale * q.k| seen


@dataclass
class Result:
    """What a twin returns."""

    out: np.ndarray  # [n, H, d]
    rows: list  # rows[i][h]: Row
    gaps: list = field(default_factory=list)  # of choices that belong to no single query


@dataclass
class Case:
    name: str
    spec: str
    twin: Callable  # (case, q, k, v) -> Result, from float64 arrays
    heads: int
    kv_heads: int
    dim: int
    n: int
    trained_window: int
    base: float = 10000.0
    frequencies: object = None  # a schedule of schedules.py; None: the table of the base
    seed: int = 1
    inputs: str = "plain"
    period: int | None = None
    scales: tuple = (3.0, 2.0, 4.0)
    calls: list | None = None
    n_prefill: int | None = None
    lengths: list | None = None  # by default [n]
    unit: int = 1
    layer: int = 0
    out_rows: list | None = None  # by default the middle and the last
    attended_rows: list | None = None  # by default the last head in out_rows
    extra: dict = field(default_factory=dict)
    knows_amplitude: bool = False  # the twin, which looks at unrotated q and k too, applies it itself

    def __post_init__(self):
        self.lengths = self.lengths or [self.n]
        self.out_rows = self.out_rows or [self.n // 2, self.n - 1]
        self.attended_rows = self.attended_rows or [(i, self.heads - 1) for i in self.out_rows]
        if self.calls is not None:
            self.n_prefill = sum(self.calls)
            assert self.lengths == [self.n] and self.n_prefill <= self.n
        assert self.heads % self.kv_heads == 0 and self.dim % 2 == 0
        assert self.inputs in KINDS
        assert (self.period is None) == (self.inputs in ("plain", "zero-keys"))
        assert max(self.lengths) == self.n and max(self.out_rows) < self.n

    def options(self):
        """{name: value} of the spec's policy, integers as such; what a twin is made from, so that golden and
        spec agree."""
        words = self.spec.split(",")[1:]
        pairs = (word.split("=", 1) for word in words)
        return {name: int(value) if value.isdigit() else value for name, value in pairs}

    def make_inputs(self):
        """q [n, H, d], k and v [n, H_kv, d] in float32."""
        heads = {"q": self.heads, "k": self.kv_heads, "v": self.kv_heads}
        x = {
            name: np.float32(scale) * uniform(name, self.seed, (self.n, heads[name], self.dim))
            for name, scale in zip("qkv", self.scales)
        }
        token = np.arange(self.n)
        if self.inputs == "zero-keys":
            x["k"][:] = 0
        elif self.inputs == "some-zero-keys":
            x["k"][(token // self.period) % 3 != 0] = 0
        elif self.inputs == "repeated":
            x = {name: value[token % self.period] for name, value in x.items()}
        elif self.inputs == "repeated-keys":
            x["k"] = x["k"][token % self.period]
        return x["q"], x["k"], x["v"]

    def rope(self):
        """What the twins take for their RoPE base."""
        if self.frequencies is None:
            return self.base
        return lambda head_dim: self.frequencies.theta(head_dim, self.base, self.trained_window)

    def amplitude(self):
        return 1.0 if self.frequencies is None else self.frequencies.amplitude()

    def run(self):
        q, k, v = (x.astype(np.float64) for x in self.make_inputs())
        if not self.knows_amplitude:
            q, k = self.amplitude() * q, self.amplitude() * k  # R is linear
        return self.twin(self, q, k, v)


def pairs_of(row, unit):
    """int32 [m, 2]: (key, distance * unit) of a query, sorted."""
    keys = np.array([key for key, _ in row.keys], dtype=np.int64)
    scaled = np.array([distance for _, distance in row.keys], dtype=np.float64) * unit
    distances = np.rint(scaled).astype(np.int64)
    assert np.abs(scaled - distances).max() < 1e-6, "the unit does not make every distance an integer"
    order = np.lexsort((distances, keys))
    return np.stack([keys[order], distances[order]], axis=1).astype("<i4")


def fnv1a_32(rows):
    """uint32 [len(rows)]: FNV-1a-32 of each byte string; byte after byte, all rows at once."""
    lengths = np.array([len(row) for row in rows])
    table = np.zeros((len(rows), lengths.max()), dtype=np.uint32)
    for at, row in enumerate(rows):
        table[at, : len(row)] = np.frombuffer(row, dtype=np.uint8)
    value = np.full(len(rows), 0x811C9DC5, dtype=np.uint32)
    with np.errstate(over="ignore"):
        for x in range(table.shape[1]):
            step = (value ^ table[:, x]) * np.uint32(0x01000193)
            value = np.where(x < lengths, step, value)
    return value


def arrays_of(case, result):
    """The golden's arrays by name, and its manifest entry."""
    # Heads often share one list of keys: it is sorted and hashed once.
    shared = {id(row.keys): row for rows in result.rows for row in rows}
    sorted_pairs = {name: pairs_of(row, case.unit) for name, row in shared.items()}
    hashed = dict(zip(sorted_pairs, fnv1a_32([pairs.tobytes() for pairs in sorted_pairs.values()])))
    pairs = [[sorted_pairs[id(row.keys)] for row in rows] for rows in result.rows]
    hashes = np.array([[hashed[id(row.keys)] for row in rows] for rows in result.rows], dtype=np.uint32)
    projection = uniform("projection", 0, (case.dim,)).astype(np.float64)
    attended = [np.insert(pairs[i][h], [0, 0], (i, h), axis=1) for i, h in case.attended_rows]
    arrays = {
        "sets": hashes,
        "attended": np.concatenate(attended).astype(np.int32),
        "out": result.out[case.out_rows].astype(np.float32),
        "projection": (result.out @ projection).astype(np.float32),
    }
    gaps = np.array([row.gap for rows in result.rows for row in rows] + list(result.gaps))
    gaps = gaps[np.isfinite(gaps)]
    clear = gaps[gaps != 0]
    entry = {
        "name": case.name,
        "spec": case.spec,
        "frequencies": None if case.frequencies is None else case.frequencies.spec(),
        "trained_window": case.trained_window,
        "base": case.base,
        "heads": case.heads,
        "kv_heads": case.kv_heads,
        "dim": case.dim,
        "n": case.n,
        "seed": case.seed,
        "inputs": case.inputs,
        "period": case.period,
        "scales": list(case.scales),
        "calls": case.calls,
        "n_prefill": case.n_prefill,
        "lengths": case.lengths,
        "unit": case.unit,
        "layer": case.layer,
        "extra": case.extra,
        "out_rows": case.out_rows,
        "attended_rows": [list(row) for row in case.attended_rows],
        "n_choices": len(gaps),
        "n_ties": len(gaps) - len(clear),
        # Nine digits: the rest depends on the machine's order of summation.
        "min_gap": float(f"{clear.min():.9g}") if clear.size else None,
        "max_logit": float(f"{max(row.max_logit for rows in result.rows for row in rows):.9g}"),
    }
    return arrays, entry


def write_part(cases, out_dir, manifest):
    """Writes the arrays of all cases and their manifest."""
    out_dir.mkdir(parents=True, exist_ok=True)
    entries = []
    for case in cases:
        arrays, entry = arrays_of(case, case.run())
        for name, array in arrays.items():
            np.save(out_dir / f"{case.name}.{name}.npy", array)
        entries.append(entry)
    lines = [line for line in __doc__.splitlines() if line]
    text = ",\n".join("  " + json.dumps(entry) for entry in entries)
    form = json.dumps(lines, indent=2).replace("\n", "\n ")
    (out_dir / manifest).write_text(f'{{\n "format": {form},\n "cases": [\n{text}\n ]\n}}\n')


def differs_from_golden(case, folder):
    """True when the twin, as it is now, does not reproduce the golden of this case."""
    arrays, _ = arrays_of(case, case.run())
    stored = {name: np.load(folder / f"{case.name}.{name}.npy") for name in arrays}
    exact = all(np.array_equal(arrays[x], stored[x]) for x in ("sets", "attended"))
    close = all(np.allclose(arrays[x], stored[x], rtol=1e-5, atol=1e-5) for x in ("out", "projection"))
    return not (exact and close)
