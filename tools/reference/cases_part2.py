"""Cases of quest, moba, landmark, esa and the ablations of longheads for the goldens.

Lengths are small, and stand round the edges of each method: its pages, blocks and chunks, its budget. Every
spec names all its options, so that no default is part of a golden. What "extra" holds:
  landmark    landmarks: the positions of the landmark tokens, which have the id `token` of the spec; the id
              of the others is any other
  esa         projections: how W_q and W_k, [dim, H_kv * d] float32 each in the half-split order of each KV
              head, are made where score=compressed: scale * uniform("w_q", seed) and scale * uniform("w_k",
              seed)
  longheads   first_layer_seed: where fix=layer or fix=both, q, k and v of layer 0 are the case's own with
              this seed; the choice is made from them. choice_seed: the seed of random choices
              (longheads.draw)
"""

import numpy as np

from esa import Options as EsaOptions
from esa import esa
from golden import Case, Result, Row
from landmark import Options as LandmarkOptions
from landmark import landmark
from longheads import COMPAT, longheads
from longheads import Options as LongHeadsOptions
from moba import Options as MobaOptions
from moba import moba
from quest import Options as QuestOptions
from quest import quest
from schedules import Yarn
from uniform import uniform

MHA_64 = dict(heads=2, kv_heads=2, dim=64)
MHA_96 = dict(heads=3, kv_heads=3, dim=96)
MHA_128 = dict(heads=2, kv_heads=2, dim=128)
GQA_64 = dict(heads=6, kv_heads=2, dim=64, base=100000.0)
GQA_96 = dict(heads=6, kv_heads=2, dim=96, base=500000.0)
GQA_128 = dict(heads=6, kv_heads=2, dim=128)
GQA_9 = dict(heads=9, kv_heads=3, dim=64, base=100000.0)
MQA_64 = dict(heads=4, kv_heads=1, dim=64)
MQA_96 = dict(heads=4, kv_heads=1, dim=96)
MQA_128 = dict(heads=4, kv_heads=1, dim=128, base=1000000.0)
YARN = Yarn(factor=50)  # an amplitude of 1.39


def run_quest(case, q, k, v):
    return quest(q, k, v, QuestOptions(**case.options(), base=case.rope()), case.n_prefill, case.layer)


def run_moba(case, q, k, v):
    n_prefill = case.n if case.n_prefill is None else case.n_prefill
    return moba(q, k, v, MobaOptions(**case.options(), base=case.rope()), n_prefill)


def run_landmark(case, q, k, v):
    options = case.options()
    del options["token"]
    options = LandmarkOptions(case.trained_window, **options, base=case.rope())
    return landmark(q, k, v, options, case.extra["landmarks"], case.n_prefill, case.calls)


def projections_of(case):
    """(W_q, W_k), float32 values, or None."""
    if "projections" not in case.extra:
        return None
    made = case.extra["projections"]
    shape = (case.options()["dim"], case.kv_heads * case.dim)
    return tuple(
        np.float32(made["scale"]) * uniform(name, made["seed"], shape).astype(np.float64)
        for name in ("w_q", "w_k")
    )


def run_esa(case, q, k, v):
    options = EsaOptions(**case.options(), base=case.rope())
    return esa(q, k, v, options, case.n_prefill, case.calls, projections_of(case))


def longheads_options(case):
    options = case.options()
    compat = options.pop("compat")
    compat = {"none": (), "all": COMPAT}.get(compat) or [x for x in compat.split("+") if x != "none"]
    seed = case.extra.get("choice_seed", 0)
    return LongHeadsOptions(**options, compat=compat, base=case.rope(), amplitude=case.amplitude(), seed=seed)


def first_layer_of(case):
    """q, k and v of layer 0, where the case plays a later one that keeps its choices."""
    if "first_layer_seed" not in case.extra:
        return None
    heads = {"q": case.heads, "k": case.kv_heads, "v": case.kv_heads}
    return tuple(
        np.float32(scale) * uniform(name, case.extra["first_layer_seed"], (case.n, heads[name], case.dim))
        for name, scale in zip("qkv", case.scales)
    )


def run_longheads(case, q, k, v):
    options = longheads_options(case)
    result = longheads(q, k, v, options, case.n_prefill, case.layer, first_layer_of(case))
    scale = case.amplitude() ** 2 / np.sqrt(case.dim)
    rows = [[Row(row.keys, scale, row.gap, row.max_logit) for row in rows] for rows in result.rows]
    # Heads that choose together have made one decision.
    deciders = {"head": range(case.heads), "kv": range(0, case.heads, case.heads // case.kv_heads)}
    deciders = [0] if options.fix in ("head", "both") else deciders[options.select]
    for of_token in rows:
        for head, row in enumerate(of_token):
            if head not in deciders:
                row.gap = np.inf
    return Result(result.out, rows)


def around(*edges, n):
    """1, n, and one below, at and one above every edge."""
    near = {edge + x for edge in edges for x in (-1, 0, 1)}
    return sorted({1, n} | {m for m in near if 1 <= m <= n})


def quest_case(name, page, budget, n, n_prefill, *, rule="kernel", dense_layers=2, layer=2, **rest):
    pages = budget // page * page
    edges = (page, pages, pages + page, n_prefill, n // page * page)
    return Case(
        f"quest-{name}",
        f"quest,page={page},budget={budget},dense_layers={dense_layers},rule={rule}",
        run_quest,
        n=n,
        n_prefill=n_prefill,
        layer=layer,
        trained_window=512,
        lengths=around(*edges, n=n),
        **rest,
    )


QUEST = [
    quest_case("mha", 16, 64, 167, 40, **MHA_64, out_rows=[79, 80, 166], seed=11),
    quest_case("gqa", 8, 40, 101, 1, **GQA_64, out_rows=[39, 40, 47, 100], seed=140),
    quest_case("mqa", 16, 71, 150, 90, **MQA_96, out_rows=[95, 96, 149], seed=237),
    quest_case("gqa-late-layer", 5, 35, 93, 61, dense_layers=1, layer=7, **GQA_9, seed=41),
    quest_case("mha-96", 8, 40, 90, 30, **MHA_96, seed=17),
    quest_case("gqa-128", 8, 40, 90, 30, **GQA_128, seed=36),
    quest_case("yarn", 8, 40, 90, 30, **GQA_64, frequencies=YARN, seed=54),
    quest_case("one-page", 8, 15, 70, 20, dense_layers=0, layer=0, **MQA_128),
    quest_case("dense-layer", 8, 16, 60, 20, layer=1, **GQA_96),
    quest_case(
        "evaluation", 16, 64, 100, 40, rule="evaluation", **GQA_9, out_rows=[47, 48, 62, 63, 99], seed=115
    ),
    quest_case(
        "evaluation-three-pages", 4, 8, 67, 9, rule="evaluation", **MHA_128, out_rows=[11, 12, 66], seed=115
    ),
    quest_case("evaluation-mqa", 8, 44, 100, 50, rule="evaluation", **MQA_64, seed=94),
    quest_case("tie-zero-keys", 8, 32, 90, 20, **MQA_64, inputs="zero-keys"),
    quest_case(
        "tie-some-zero-keys",
        8,
        48,
        150,
        60,
        **GQA_64,
        inputs="some-zero-keys",
        period=8,
        out_rows=[101, 149],
        seed=114,
    ),
    quest_case(
        "evaluation-tie", 8, 48, 150, 60, rule="evaluation", **MHA_64, inputs="some-zero-keys", period=8
    ),
]


def moba_case(name, chunk, top_k, n, *, decode="full", n_prefill=None, **rest):
    edges = (chunk, top_k * chunk, (top_k + 1) * chunk, n_prefill or n)
    return Case(
        f"moba-{name}",
        f"moba,chunk={chunk},top_k={top_k},decode={decode}",
        run_moba,
        n=n,
        n_prefill=n_prefill,
        trained_window=512,
        lengths=around(*edges, n=n),
        **rest,
    )


MOBA = [
    moba_case("mha", 16, 3, 167, n_prefill=130, **MHA_64, out_rows=[48, 127, 129, 130, 166]),
    moba_case("gqa-gated", 8, 4, 131, decode="gated", **GQA_64, out_rows=[31, 32, 130], seed=114),
    moba_case("mqa", 32, 2, 230, n_prefill=200, **MQA_96, out_rows=[64, 199, 229]),
    moba_case("gqa-gated-9", 12, 3, 130, decode="gated", **GQA_9, seed=139),
    moba_case("mha-96", 8, 4, 90, n_prefill=80, **MHA_96),
    moba_case("gqa-128", 8, 4, 90, decode="gated", **GQA_128),
    moba_case("yarn", 8, 4, 90, decode="gated", **GQA_64, frequencies=YARN),
    moba_case("wide", 16, 5, 150, n_prefill=141, **MHA_128),
    moba_case("own-block-alone", 16, 1, 60, n_prefill=50, **GQA_96),
    moba_case("all-blocks", 16, 8, 125, n_prefill=100, **MQA_128),
    moba_case("tie-zero-keys", 8, 4, 99, decode="gated", **MQA_64, inputs="zero-keys"),
    moba_case("tie-some-zero-keys", 8, 7, 150, n_prefill=140, **MHA_64, inputs="some-zero-keys", period=8),
]


def landmark_case(name, block, top_k, trained_window, n, calls, *, extra=None, **rest):
    window = LandmarkOptions(trained_window, block, top_k).window
    prefill = sum(calls)
    return Case(
        f"landmark-{name}",
        f"landmark,block={block},top_k={top_k},token=3",
        run_landmark,
        n=n,
        calls=calls,
        trained_window=trained_window,
        extra={"landmarks": list(range(block - 1, n, block))},
        out_rows=sorted({block - 1, window - 1, window, prefill - 1, prefill, n - 1} & set(range(n))),
        **rest,
    )


LANDMARK = [
    landmark_case("mha", 17, 2, 120, 260, [210], **MHA_64),
    landmark_case("gqa", 51, 2, 320, 380, [340], **GQA_64, seed=8),
    landmark_case("mqa-calls", 9, 3, 64, 200, [40, 3, 58, 2, 52], **MQA_96, seed=48),
    landmark_case("mha-96", 9, 2, 64, 120, [100], **MHA_96),
    landmark_case("gqa-96", 9, 2, 64, 120, [100], **GQA_96, seed=10),
    landmark_case("gqa-128", 9, 2, 64, 120, [100], **GQA_128, seed=34),
    landmark_case("yarn", 9, 2, 64, 120, [100], **GQA_64, frequencies=YARN, seed=5),
    landmark_case("gqa-window-of-one-block", 12, 1, 40, 110, [70], **GQA_9),
    landmark_case("decode-alone", 8, 5, 64, 120, [1], **MHA_128),
    landmark_case("few-blocks", 16, 4, 128, 90, [70], **MQA_128),
    landmark_case("tie-repeated", 10, 3, 64, 140, [120], **GQA_64, inputs="repeated", period=10),
    landmark_case("tie-zero-keys", 10, 2, 64, 120, [100], **MQA_64, inputs="zero-keys"),
]


def esa_case(name, n_init, k, n_local, chunk, eps, n, calls, *, rank=16, score="exact", share="sum", **rest):
    prefill = sum(calls)
    first = (n_local // chunk + 1) * chunk  # the first row that sees tokens at distance w
    return Case(
        f"esa-{name}",
        f"esa,n_init={n_init},k={k},n_local={n_local},chunk={chunk},dim={rank},eps={eps},score={score}"
        f",share={share}",
        run_esa,
        n=n,
        calls=calls,
        trained_window=512,
        out_rows=sorted({first - 1, first, prefill - 1, n - 1} & set(range(n))),
        extra={"projections": {"scale": 0.25, "seed": 1}} if score == "compressed" else {},
        **rest,
    )


ESA = [
    esa_case("mha", 8, 24, 32, 16, 1, 150, [112], **MHA_64, seed=221),
    esa_case("gqa", 4, 40, 48, 32, 3, 220, [200], **GQA_64, seed=38),
    esa_case("mqa", 3, 12, 20, 8, 0, 120, [97], **MQA_96, seed=126),
    esa_case("mha-96", 4, 20, 24, 8, 1, 110, [90], **MHA_96, seed=50),
    esa_case("gqa-128", 4, 20, 24, 8, 1, 110, [90], **GQA_128),
    esa_case("yarn", 4, 20, 24, 8, 1, 110, [90], **GQA_64, frequencies=YARN, seed=10),
    esa_case("compressed-yarn", 4, 20, 24, 8, 1, 110, [90], score="compressed", **GQA_64, frequencies=YARN),
    esa_case("uneven-local", 5, 30, 21, 12, 2, 150, [130], **GQA_96, seed=16),
    esa_case("chunk-above-local", 4, 32, 20, 30, 1, 170, [155], **MQA_128),
    esa_case("no-init", 0, 20, 24, 8, 3, 110, [80], **MHA_128, seed=58),
    esa_case("calls", 6, 25, 32, 16, 1, 170, [50, 1, 37, 23, 40], **GQA_64, seed=202),
    esa_case("decode-alone", 6, 16, 24, 8, 2, 90, [1], **GQA_9),
    # The best key of each of 16 queries has the same score, and only 6 are taken: the index decides.
    esa_case("fewer-than-best", 4, 6, 16, 16, 0, 116, [112], **MQA_64),
    esa_case("individual", 6, 25, 24, 12, 1, 130, [115], share="individual", **GQA_9, seed=94),
    esa_case("compressed", 6, 25, 32, 16, 1, 150, [120], score="compressed", **GQA_64, seed=194),
    esa_case("compressed-mqa", 4, 20, 24, 8, 3, 110, [90], rank=24, score="compressed", **MQA_96),
    esa_case("tie-zero-keys", 4, 20, 24, 8, 1, 100, [80], **MQA_64, inputs="zero-keys"),
    esa_case("tie-repeated-keys", 4, 20, 24, 8, 1, 120, [90], **GQA_64, inputs="repeated-keys", period=7),
]


def longheads_case(name, slots, *, chunk=8, begin=None, n=111, extra=None, n_prefill=None, layer=0, **rest):
    shape = {
        x: rest.pop(x)
        for x in ("heads", "kv_heads", "dim", "base", "seed", "inputs", "period", "frequencies")
        if x in rest
    }
    options = dict(represent="paper", choose="top", first="on", fix="none") | rest
    options = dict(reps="head", select="head", compat="none") | options
    window = slots * chunk
    begin = window if begin is None else begin
    words = [f"chunk={chunk}", f"window={window}", f"begin={begin}"]
    words += [f"{option}={value}" for option, value in options.items()]
    if options["choose"].startswith("random"):
        extra = {"choice_seed": 0} | (extra or {})
    return Case(
        f"longheads-{name}",
        ",".join(["longheads"] + words),
        run_longheads,
        knows_amplitude=True,
        n=n,
        n_prefill=n_prefill,
        layer=layer,
        trained_window=512,
        lengths=around(begin, begin + chunk, n=n),
        extra=extra or {},
        out_rows=[begin, n // chunk * chunk - 1, n - 1],
        **shape,
    )


LONGHEADS = [
    longheads_case("mean", 6, represent="mean", **GQA_64, seed=114),
    longheads_case("last", 6, represent="last", **MQA_96, seed=106),
    longheads_case("mean-kv", 5, represent="mean", reps="kv", select="kv", **GQA_9),
    longheads_case("gqa-128", 6, represent="mean", **GQA_128),
    longheads_case("yarn-last", 6, represent="last", **GQA_64, frequencies=YARN, seed=5),
    longheads_case("yarn-mean", 6, represent="mean", **GQA_64, frequencies=YARN, seed=14),
    longheads_case("random", 6, choose="random", layer=3, **GQA_64),
    longheads_case("random-keep", 7, choose="random-keep", layer=1, **MQA_128),
    longheads_case("random-kv", 6, choose="random-keep", select="kv", layer=2, **GQA_9),
    longheads_case("last-k", 6, choose="last-k", **GQA_96, seed=60),
    longheads_case("without-first", 6, first="off", **GQA_64, seed=22),
    longheads_case("random-without-first", 5, choose="random", first="off", **MHA_64),
    longheads_case(
        "last-k-without-first", 5, choose="last-k", first="off", represent="last", **MHA_128, seed=25
    ),
    longheads_case("fix-head", 6, fix="head", **GQA_9),
    longheads_case("fix-head-kv", 6, fix="head", select="kv", **GQA_96),
    longheads_case("fix-head-random", 6, fix="head", choose="random-keep", layer=4, **MQA_64),
    longheads_case("fix-layer-first", 6, fix="layer", layer=0, **MHA_96),
    longheads_case("fix-layer", 6, fix="layer", layer=2, extra={"first_layer_seed": 77}, **GQA_64, seed=57),
    longheads_case(
        "fix-layer-kv", 6, fix="layer", layer=1, select="kv", reps="kv", extra={"first_layer_seed": 79}, **GQA_9
    ),
    longheads_case("fix-layer-random", 6, fix="layer", choose="random-keep", layer=2, **MHA_64),
    longheads_case("fix-both", 6, fix="both", layer=1, reps="kv", extra={"first_layer_seed": 78}, **GQA_96),
    longheads_case("compat-random", 5, choose="random", compat="all", n_prefill=70, **MHA_64),
    longheads_case(
        "compat-without-first", 5, begin=48, first="off", compat="all", n_prefill=30, **GQA_64, seed=66
    ),
    longheads_case("tie-last-k", 5, choose="last-k", inputs="zero-keys", **MQA_64),
]

CASES = QUEST + MOBA + LANDMARK + ESA + LONGHEADS
