"""Writes what the naive LongHeads twin attends to and returns, on inputs both sides can generate; the build
does so, for the tests.

Usage: longheads_goldens.py OUT_DIR | --search N   (--search tries N seeds a case and prints the one with
the widest gap)

manifest.json describes every case; its "format" entry says what the arrays hold.
"""

import argparse
import json
import pathlib
from dataclasses import asdict

import numpy as np

from common import frequencies
from longheads import Options, all_representations, attends_fully, forced_and_free, longheads
from uniform import uniform

# Options that all cases here leave at their defaults; method_goldens.py has the others.
ABLATIONS = ("represent", "choose", "first", "fix", "seed")

FORMAT = {
    "inputs": (
        "float32. q [n, H, d] is q_scale * uniform('q', seed), k [n, H_kv, d] is k_scale * uniform('k',"
        " seed), v [n, H_kv, d] is v_scale * uniform('v', seed), then changed as 'inputs' says; uniform is"
        " defined in tools/reference/uniform.py (FNV-1a-64 of the name xor the seed, splitmix64). All are"
        " unrotated and in the half-split layout: permute q and k (never v) for a kernel that works on"
        " interleaved pairs."
    ),
    "inputs_kinds": {
        "plain": "as generated",
        "zero-keys": "k is all zeros: every score is exactly 0, so the chunks with the lowest indices win",
        "some-zero-keys": (
            "k is zero in every chunk whose index is not a multiple of 3: their scores are exactly 0, tied"
            " with one another"
        ),
        "repeated": (
            "token t of q, k and v holds the generated token t mod chunk: all chunks have the same"
            " representation and all scores of a query tie"
        ),
    },
    "lengths": (
        "token counts to run. A run over the first m tokens has the first m rows of the golden (the twin is"
        " causal; without compat it does not know prefill from decode either)"
    ),
    "n_prefill": "tokens in prefill, the others are decoded one by one; null where it makes no difference",
    "CASE.chunks.npy": (
        "uint32 [n, H]: bit C says that query (i, h) attends to chunk C; all bits 0..i/chunk where attention"
        " is full"
    ),
    "CASE.sets.npy": (
        "uint32 [n]: FNV-1a-32 over the little-endian int32 pairs (key, distance) of all heads in order, keys"
        " ascending"
    ),
    "CASE.attended.npy": (
        "int32 [m, 4]: the rows (i, h, key, distance) for the queries (i, h) in attended_rows, in that order;"
        " for reading a difference that sets has shown"
    ),
    "CASE.out.npy": "float32 [len(out_rows), H, d]: attention outputs of the queries in out_rows",
    "CASE.projection.npy": (
        "float32 [n, H]: sum over x of out[i, h, x] * uniform('projection', 0)[x], so that every output is"
        " covered"
    ),
    "min_gap": (
        "over all choices: score of the last chunk taken minus the best one left out, relative to the query's"
        " largest |score| among the candidates; exact ties of the tie cases are not counted. Far above"
        " float32 rounding, so float32 must choose the same chunks"
    ),
    "max_logit": "largest |tau * q.k| of any attended pair, for deriving tolerances",
}


def case(
    name,
    *,
    chunk,
    slots,
    begin,
    heads,
    kv_heads,
    dim,
    n,
    lengths=None,
    n_prefill=None,
    seed=1,
    inputs="plain",
    scales=(3.0, 2.0, 4.0),
    **rest,
):
    options = Options(chunk=chunk, window=slots * chunk, begin=begin, **rest)
    return {
        "name": name,
        "options": options,
        "heads": heads,
        "kv_heads": kv_heads,
        "dim": dim,
        "n": n,
        "lengths": lengths or [n],
        "n_prefill": n_prefill,
        "seed": seed,
        "inputs": inputs,
        "scales": scales,
    }


def edges(chunk, begin):
    """The lengths at which an implementation is likely to be off by one, up to 3B+7."""
    return sorted({1, chunk - 1, chunk, chunk + 1, begin - 1, begin, begin + 1, begin + chunk, 3 * begin + 7})


GROUPED = dict(
    chunk=8, slots=8, begin=64, heads=6, kv_heads=2, dim=64, n=199, lengths=edges(8, 64), base=100000.0
)
SMALL = dict(chunk=8, slots=4, heads=2, kv_heads=1, dim=64, n=103, seed=3)

CASES = [
    case(
        "mha", chunk=8, slots=8, begin=64, heads=2, kv_heads=2, dim=64, n=199, lengths=edges(8, 64), seed=45
    ),
    case("gqa-head-head", **GROUPED, seed=3),
    case("gqa-kv-head", **GROUPED, reps="kv", seed=41),
    case("gqa-head-kv", **GROUPED, select="kv", seed=56),
    case("gqa-kv-kv", **GROUPED, reps="kv", select="kv", seed=33),
    case(
        "mqa-begin-above-window",
        chunk=8,
        slots=4,
        begin=64,
        heads=4,
        kv_heads=1,
        dim=96,
        n=199,
        lengths=edges(8, 64),
        seed=55,
    ),
    case(
        "no-free-choice", chunk=4, slots=3, begin=12, heads=2, kv_heads=1, dim=128, n=43, lengths=edges(4, 12)
    ),
    case("amplitude", **GROUPED, seed=19, amplitude=1.4),  # of YaRN with a factor of 50
    case(
        "short-chunks",
        chunk=4,
        slots=8,
        begin=32,
        heads=2,
        kv_heads=1,
        dim=96,
        n=103,
        lengths=edges(4, 32),
        seed=13,
    ),
    case(
        "short-chunks-begin-above-window",
        chunk=4,
        slots=4,
        begin=32,
        heads=2,
        kv_heads=2,
        dim=128,
        n=103,
        lengths=edges(4, 32),
        seed=18,
    ),
    case(
        "chunks-of-32",
        chunk=32,
        slots=4,
        begin=128,
        heads=2,
        kv_heads=2,
        dim=64,
        n=391,
        lengths=edges(32, 128),
        seed=49,
    ),
    case(
        "chunks-of-256",
        chunk=256,
        slots=4,
        begin=1024,
        heads=1,
        kv_heads=1,
        dim=64,
        n=1545,
        lengths=[1023, 1025, 1545],
        seed=95,
    ),
    case("compat-own-key", **SMALL, begin=32, compat=["own-key"], n_prefill=70),
    case("compat-chunk-end", **SMALL, begin=32, compat=["chunk-end"], n_prefill=20),
    case("compat-begin", **SMALL, begin=48, compat=["begin"], n_prefill=20),
    case("compat-all-decode-late", **SMALL, begin=32, compat=["own-key", "chunk-end", "begin"], n_prefill=70),
    case(
        "compat-all-decode-early", **SMALL, begin=48, compat=["own-key", "chunk-end", "begin"], n_prefill=20
    ),
    case(
        "compat-all-grouped",
        chunk=8,
        slots=4,
        begin=32,
        heads=4,
        kv_heads=2,
        dim=128,
        n=103,
        compat=["own-key", "chunk-end", "begin"],
        n_prefill=47,
        reps="kv",
        select="kv",
        seed=69,
    ),
    case("tie-zero-keys", chunk=8, slots=5, begin=40, heads=2, kv_heads=1, dim=64, n=127, inputs="zero-keys"),
    case(
        "tie-some-zero-keys",
        chunk=8,
        slots=6,
        begin=48,
        heads=2,
        kv_heads=1,
        dim=64,
        n=151,
        inputs="some-zero-keys",
    ),
    case("tie-repeated", chunk=8, slots=5, begin=40, heads=2, kv_heads=1, dim=64, n=127, inputs="repeated"),
]


def make_inputs(c):
    """q [n, H, d], k and v [n, H_kv, d] in float32."""
    n, chunk = c["n"], c["options"].chunk
    heads = {"q": c["heads"], "k": c["kv_heads"], "v": c["kv_heads"]}
    x = {
        name: np.float32(scale) * uniform(name, c["seed"], (n, heads[name], c["dim"]))
        for name, scale in zip("qkv", c["scales"])
    }
    token = np.arange(n)
    if c["inputs"] == "zero-keys":
        x["k"][:] = 0
    elif c["inputs"] == "some-zero-keys":
        x["k"][(token // chunk) % 3 != 0] = 0
    elif c["inputs"] == "repeated":
        x = {name: value[token % chunk] for name, value in x.items()}
    return x["q"], x["k"], x["v"]


def fnv1a_32(data):
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def arrays_of(c, result):
    """The golden's arrays by name, and its manifest entry."""
    n, heads, chunk = c["n"], c["heads"], c["options"].chunk
    assert (n - 1) // chunk < 32, "chunks must fit a 32-bit mask"
    begin = c["options"].begin
    out_rows = [begin, n // chunk * chunk - 1, n - 1]
    attended_rows = [(i, heads - 1) for i in (out_rows[:2] if chunk < 256 else out_rows[2:])]
    projection = uniform("projection", 0, (c["dim"],)).astype(np.float64)
    arrays = {
        "chunks": np.array(
            [[sum(1 << x for x in row.chunks) for row in rows] for rows in result.rows], dtype=np.uint32
        ),
        "sets": np.array(
            [
                fnv1a_32(b"".join(np.array(row.keys, dtype="<i4").tobytes() for row in rows))
                for rows in result.rows
            ],
            dtype=np.uint32,
        ),
        "attended": np.array(
            [(i, h, j, d) for i, h in attended_rows for j, d in result.rows[i][h].keys], dtype=np.int32
        ),
        "out": result.out[out_rows].astype(np.float32),
        "projection": (result.out @ projection).astype(np.float32),
    }
    gaps = np.array([row.gap for rows in result.rows for row in rows])
    tied = gaps == 0
    assert c["inputs"] != "plain" or not tied.any()
    finite = gaps[np.isfinite(gaps) & ~tied]
    options = asdict(c["options"]) | {"compat": sorted(c["options"].compat)}
    for name in ABLATIONS:
        del options[name]
    q_scale, k_scale, v_scale = c["scales"]
    entry = {
        "name": c["name"],
        **options,
        "n_heads": heads,
        "n_kv_heads": c["kv_heads"],
        "head_dim": c["dim"],
        "n": n,
        "n_prefill": c["n_prefill"],
        "lengths": c["lengths"],
        "seed": c["seed"],
        "inputs": c["inputs"],
        "q_scale": q_scale,
        "k_scale": k_scale,
        "v_scale": v_scale,
        "out_rows": out_rows,
        "attended_rows": attended_rows,
        "n_choices": int(np.isfinite(gaps).sum()),
        "n_ties": int(tied.sum()),
        "min_gap": float(finite.min()) if finite.size else None,
        "max_logit": max(row.max_logit for rows in result.rows for row in rows),
    }
    return arrays, entry


def search_seed(c, tries):
    """The seed whose smallest gap is widest. Only scores are computed, so this is cheap."""
    options, found = c["options"], (-1.0, None)
    for seed in range(1, tries + 1):
        q, k, v = (x.astype(np.float64) for x in make_inputs(c | {"seed": seed}))
        reps = all_representations(q, k, v, options, frequencies(c["dim"], options.base))
        group = c["heads"] // c["kv_heads"]
        gap = np.inf
        table = np.einsum("nhd,chd->nhc", q, reps)
        if options.select == "kv":
            table = table.reshape(len(q), c["kv_heads"], group, -1).sum(axis=2)
        for i in range(len(q)):
            decoding = c["n_prefill"] is not None and i >= c["n_prefill"]
            if attends_fully(i, decoding, options):
                continue
            _, candidates = forced_and_free(i, decoding, options)
            count = options.window // options.chunk - 3
            if count == 0 or len(candidates) <= count:
                continue
            s = np.sort(table[i][:, list(candidates)], axis=1)[:, ::-1]
            gap = min(gap, ((s[:, count - 1] - s[:, count]) / np.abs(s).max(axis=1)).min())
            if gap <= found[0]:
                break
        if gap > found[0]:
            found = (float(gap), seed)
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out_dir", nargs="?", type=pathlib.Path)
    parser.add_argument("--search", type=int, metavar="N")
    arguments = parser.parse_args()

    if (arguments.out_dir is None) == (arguments.search is None):
        parser.error("name the folder to write to, or seeds to try with --search")
    entries = []
    for c in CASES:
        if arguments.search:
            if c["inputs"] == "plain":
                print(c["name"], *search_seed(c, arguments.search), flush=True)
            continue
        arrays, entry = arrays_of(c, longheads(*make_inputs(c), c["options"], c["n_prefill"]))
        arguments.out_dir.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(arguments.out_dir / f"{c['name']}.{name}.npy", array)
        entries.append(entry)
    if entries:
        text = json.dumps({"format": FORMAT, "cases": entries}, indent=1)
        (arguments.out_dir / "manifest.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
