"""Cases of full, self-extend, rerope, leaky-rerope, streaming-llm, lm-infinite and infllm for the goldens.

Lengths are small, and stand round the edges of each method: its window, its groups, its blocks. Every spec
names all its options, so that no default is part of a golden.
"""

from full import full
from golden import Case
from infllm import Options as InfLlmOptions
from infllm import infllm
from lm_infinite import Options as LmInfiniteOptions
from lm_infinite import lm_infinite
from rerope import Options as ReRopeOptions
from rerope import rerope
from schedules import Yarn
from self_extend import Options as SelfExtendOptions
from self_extend import self_extend
from streaming_llm import Options as StreamingOptions
from streaming_llm import streaming_llm

MHA_64 = dict(heads=3, kv_heads=3, dim=64)
MHA_96 = dict(heads=2, kv_heads=2, dim=96)
MHA_128 = dict(heads=2, kv_heads=2, dim=128)
GQA_64 = dict(heads=9, kv_heads=3, dim=64, base=100000.0)
GQA_96 = dict(heads=6, kv_heads=2, dim=96, base=500000.0)
GQA_128 = dict(heads=6, kv_heads=2, dim=128)
MQA_64 = dict(heads=4, kv_heads=1, dim=64)
MQA_96 = dict(heads=4, kv_heads=1, dim=96)
MQA_128 = dict(heads=4, kv_heads=1, dim=128, base=1000000.0)
YARN = Yarn(factor=50)  # an amplitude of 1.39


def is_on(value):
    return {"on": True, "off": False}[value]


def run_full(case, q, k, v):
    return full(q, k, v, case.rope())


def run_self_extend(case, q, k, v):
    options = case.options()
    log_n = case.trained_window if is_on(options.pop("log_n")) else None
    return self_extend(q, k, v, SelfExtendOptions(**options, log_n=log_n, base=case.rope()))


def run_rerope(case, q, k, v):
    options = case.options()
    log_n = is_on(options.pop("log_n"))
    return rerope(q, k, v, ReRopeOptions(**options, log_n=log_n, base=case.rope()))


def run_streaming_llm(case, q, k, v):
    return streaming_llm(q, k, v, StreamingOptions(**case.options(), base=case.rope()))


def run_lm_infinite(case, q, k, v):
    options = case.options()
    sinks = options.pop("global")
    options = LmInfiniteOptions(**options, sinks=sinks, base=case.rope())
    return lm_infinite(q, k, v, options, case.calls, case.layer)


def run_infllm(case, q, k, v):
    options = case.options()
    compat = {"all": True, "none": False}[options.pop("compat")]
    per_head = is_on(options.pop("per_head"))
    options = InfLlmOptions(**options, per_head=per_head, compat=compat, base=case.rope())
    return infllm(q, k, v, options, case.calls)


def around(*edges, n):
    """1, n, and one below, at and one above every edge."""
    near = {edge + x for edge in edges for x in (-1, 0, 1)}
    return sorted({1, n} | {m for m in near if 1 <= m <= n})


FULL = [
    Case("full-mha", "full", run_full, **MHA_64, n=150, trained_window=150, lengths=around(64, 128, n=150)),
    Case("full-gqa", "full", run_full, **GQA_96, n=130, trained_window=256, lengths=around(64, 128, n=130)),
    Case(
        "full-past-the-window",
        "full",
        run_full,
        **MQA_128,
        n=259,
        trained_window=128,
        lengths=around(128, 256, n=259),
    ),
    *(
        Case(f"full-{name}", "full", run_full, **shape, n=70, trained_window=128, lengths=around(64, n=70))
        for name, shape in {
            "mha-96": MHA_96,
            "mha-128": MHA_128,
            "gqa-64": GQA_64,
            "gqa-128": GQA_128,
            "mqa-64": MQA_64,
            "mqa-96": MQA_96,
        }.items()
    ),
    Case("full-yarn", "full", run_full, **GQA_64, n=100, trained_window=64, frequencies=YARN),
]


def self_extend_case(name, group, window, n, trained_window, *, fraction="floor", log_n="off", **rest):
    spec = f"self-extend,group={group},window={window},log_n={log_n},fraction={fraction}"
    return Case(f"self-extend-{name}", spec, run_self_extend, n=n, trained_window=trained_window, **rest)


SELF_EXTEND = [
    self_extend_case("mha", 2, 16, 121, 128, **MHA_64, lengths=around(16, 18, n=121)),
    self_extend_case("gqa", 4, 16, 150, 64, **GQA_64, lengths=around(16, 20, 24, 128, n=150)),
    # A window off by one shows only where the group does not divide it.
    self_extend_case("uneven", 5, 12, 163, 64, **GQA_96, lengths=around(12, 15, 20, 160, n=163)),
    self_extend_case("uneven-mqa", 7, 31, 131, 64, **MQA_128, lengths=around(28, 31, 35, n=131)),
    # floor((n - 1)/G) + W - floor(W/G) = L - 1 = 31, the last length that fits.
    self_extend_case("at-capacity", 5, 14, 100, 32, **MQA_64, lengths=around(14, 15, 95, n=100)),
    self_extend_case("group-above-window", 12, 8, 127, 32, **GQA_64, lengths=around(8, 12, 24, n=127)),
    self_extend_case("mha-128", 6, 20, 110, 64, **MHA_128, lengths=around(18, 20, 24, n=110)),
    self_extend_case("mqa-96", 3, 25, 110, 64, **MQA_96, lengths=around(24, 25, 27, n=110)),
    self_extend_case("yarn", 4, 16, 110, 64, **GQA_64, frequencies=YARN),
    self_extend_case("group-of-one", 1, 16, 90, 90, **MHA_96, lengths=around(16, n=90)),
    self_extend_case("all-neighbours", 4, 100, 97, 128, **GQA_128, lengths=around(64, n=97)),
    self_extend_case("log-n", 3, 10, 120, 48, log_n="on", **MQA_128, lengths=around(10, 12, 48, n=120)),
    self_extend_case(
        "exact", 5, 12, 163, 64, fraction="exact", unit=5, **MHA_64, lengths=around(12, 15, 20, n=163)
    ),
    self_extend_case(
        "exact-gqa", 7, 31, 131, 64, fraction="exact", unit=7, **GQA_96, lengths=around(28, 31, 35, n=131)
    ),
    # The group divides the window: nothing is left of the fraction.
    self_extend_case(
        "exact-even", 4, 16, 101, 64, fraction="exact", log_n="on", **MQA_64, lengths=around(16, 64, n=101)
    ),
]


def rerope_case(name, window, n, trained_window, *, factor=None, log_n_base=None, **rest):
    method = "rerope" if factor is None else "leaky-rerope"
    spec = f"{method},window={window}" + ("" if factor is None else f",factor={factor}")
    spec += ",log_n=off" if log_n_base is None else f",log_n=on,log_n_base={log_n_base}"
    unit = 1 if factor is None else factor
    return Case(f"{method}-{name}", spec, run_rerope, n=n, trained_window=trained_window, unit=unit, **rest)


REROPE = [
    rerope_case("mha", 16, 140, 64, **MHA_64, lengths=around(16, 128, n=140)),
    rerope_case("gqa", 31, 131, 64, **GQA_64, lengths=around(31, 64, n=131)),
    rerope_case("log-n", 16, 140, 64, log_n_base=40, **GQA_96, lengths=around(16, 40, n=140)),
    rerope_case("log-n-within-window", 24, 99, 64, log_n_base=5, **MQA_64, lengths=around(5, 24, n=99)),
    rerope_case("log-n-of-window", 20, 120, 64, log_n_base=64, **MQA_128, lengths=around(20, 64, n=120)),
    rerope_case("window-of-one", 1, 70, 64, **MHA_96, lengths=around(2, n=70)),
    rerope_case("all-near", 127, 120, 128, log_n_base=128, **GQA_128, lengths=around(64, n=120)),
    rerope_case("mha", 16, 140, 64, factor=4, **MHA_96, lengths=around(16, 20, n=140)),
    rerope_case("gqa", 13, 150, 64, factor=16, log_n_base=64, **GQA_64, lengths=around(13, 29, 64, n=150)),
    rerope_case("mqa", 11, 120, 64, factor=3, log_n_base=30, **MQA_128, lengths=around(11, 14, 30, n=120)),
    rerope_case("mha-128", 19, 100, 64, **MHA_128, lengths=around(19, 64, n=100)),
    rerope_case("mqa-96", 40, 110, 64, **MQA_96, lengths=around(40, 64, n=110)),
    rerope_case("yarn", 16, 110, 64, log_n_base=40, **GQA_64, frequencies=YARN),
    rerope_case("mha-64", 12, 90, 64, factor=5, **MHA_64, lengths=around(12, 17, n=90)),
    rerope_case("mha-128", 19, 100, 64, factor=2, **MHA_128, lengths=around(19, 21, n=100)),
    rerope_case("gqa-96", 9, 100, 64, factor=7, **GQA_96, lengths=around(9, 16, n=100)),
    rerope_case("mqa-64", 14, 100, 64, factor=6, **MQA_64, lengths=around(14, 20, n=100)),
    rerope_case("mqa-96", 10, 100, 64, factor=8, **MQA_96, lengths=around(10, 18, n=100)),
    rerope_case("yarn", 16, 110, 64, factor=4, **GQA_128, frequencies=YARN),
    rerope_case("factor-of-one", 16, 90, 90, factor=1, **GQA_128, lengths=around(16, n=90)),
]


def streaming_case(name, start, recent, form, n, trained_window, **rest):
    edges = (start, recent, start + recent, start + recent + 2, 2 * (start + recent) + 1)
    return Case(
        f"streaming-llm-{name}",
        f"streaming-llm,start={start},recent={recent},form={form}",
        run_streaming_llm,
        n=n,
        trained_window=trained_window,
        lengths=around(*edges, n=n),
        **rest,
    )


STREAMING_LLM = [
    streaming_case("slots-mha", 4, 28, "slots", 150, 64, **MHA_64),
    streaming_case("slots-gqa", 4, 16, "slots", 140, 64, **GQA_64),
    streaming_case("slots-one-sink", 1, 31, "slots", 131, 33, **MQA_128),
    streaming_case("slots-more-sinks-than-recent", 9, 5, "slots", 99, 32, **GQA_96),
    streaming_case("slots-mha-128", 3, 20, "slots", 110, 64, **MHA_128),
    streaming_case("slots-mqa-96", 6, 25, "slots", 110, 64, **MQA_96),
    streaming_case("slots-yarn", 4, 28, "slots", 110, 64, **GQA_64, frequencies=YARN),
    streaming_case("chunk-safe-yarn", 4, 28, "chunk-safe", 110, 64, **MHA_64, frequencies=YARN),
    streaming_case("slots-all", 4, 100, "slots", 104, 128, **MHA_96),
    streaming_case("chunk-safe-mha", 4, 28, "chunk-safe", 150, 64, **MHA_96),
    streaming_case("chunk-safe-gqa", 4, 16, "chunk-safe", 140, 64, **GQA_128),
    streaming_case("chunk-safe-one-sink", 1, 31, "chunk-safe", 131, 32, **GQA_64),
    streaming_case("chunk-safe-more-sinks-than-recent", 9, 5, "chunk-safe", 99, 32, **MQA_64),
    streaming_case("chunk-safe-all", 4, 100, "chunk-safe", 100, 128, **GQA_96),
]


def lm_infinite_case(name, spec, n, trained_window, **rest):
    return Case(
        f"lm-infinite-{name}",
        f"lm-infinite,{spec}",
        run_lm_infinite,
        n=n,
        trained_window=trained_window,
        **rest,
    )


LM_INFINITE = [
    lm_infinite_case(
        "mha",
        "global=4,local=16,limit=16,top_k=0,form=official",
        140,
        64,
        **MHA_64,
        lengths=around(4, 16, 20, n=140),
    ),
    lm_infinite_case(
        "gqa-whole-window",
        "global=10,local=32,limit=32,top_k=0,form=official",
        150,
        32,
        **GQA_64,
        lengths=around(10, 32, 42, n=150),
    ),
    lm_infinite_case(
        "limit-below-local",
        "global=5,local=24,limit=9,top_k=0,form=official",
        110,
        64,
        **MQA_128,
        lengths=around(9, 24, 29, n=110),
    ),
    # The sinks' distance is 35, 40, 40 ... in prefill; token 36 would have 36 in decode.
    lm_infinite_case(
        "limit-above-local",
        "global=5,local=16,limit=40,top_k=0,form=official",
        120,
        64,
        **GQA_96,
        calls=[36, 7, 1, 40],
        seed=2,
    ),
    lm_infinite_case(
        "limit-above-local-decoded",
        "global=5,local=16,limit=40,top_k=0,form=official",
        70,
        64,
        **MHA_96,
        calls=[19],
    ),
    lm_infinite_case(
        "all-local",
        "global=4,local=100,limit=100,top_k=0,form=official",
        100,
        128,
        **MQA_64,
        lengths=around(64, n=100),
    ),
    lm_infinite_case(
        "mha-128",
        "global=4,local=16,limit=16,top_k=6,top_k_from=0,top_k_at=12,form=official",
        90,
        64,
        **MHA_128,
        calls=[70],
    ),
    lm_infinite_case(
        "mqa-96",
        "global=4,local=16,limit=16,top_k=6,top_k_from=0,top_k_at=12,form=official",
        90,
        64,
        **MQA_96,
        calls=[70],
        seed=48,
    ),
    lm_infinite_case(
        "yarn",
        "global=4,local=16,limit=16,top_k=6,top_k_from=0,top_k_at=12,form=official",
        90,
        64,
        **GQA_64,
        calls=[70],
        frequencies=YARN,
        seed=33,
    ),
    lm_infinite_case(
        "infllm-mha",
        "global=6,local=20,top_k=0,form=infllm",
        140,
        64,
        **MHA_96,
        lengths=around(6, 20, 26, n=140),
    ),
    lm_infinite_case(
        "infllm-gqa",
        "global=12,local=7,top_k=0,form=infllm",
        120,
        32,
        **GQA_128,
        lengths=around(7, 12, 19, n=120),
    ),
    # 27 = S + w + k: the first call's last row is one token short of choosing, the second one's is not.
    lm_infinite_case(
        "top-k-gqa",
        "global=4,local=16,limit=16,top_k=7,top_k_from=0,top_k_at=12,form=official",
        120,
        64,
        **GQA_64,
        seed=50,
        calls=[26, 1, 30, 47],
        out_rows=[26, 56, 103, 119],
    ),
    lm_infinite_case(
        "top-k-mha-first-layer",
        "global=10,local=32,limit=32,top_k=5,top_k_from=4,top_k_at=16,form=official",
        150,
        32,
        **MHA_64,
        seed=21,
        calls=[100],
        layer=4,
    ),
    lm_infinite_case(
        "top-k-mha-layer-before",
        "global=10,local=32,limit=32,top_k=5,top_k_from=4,top_k_at=16,form=official",
        120,
        32,
        **MHA_64,
        calls=[100],
        layer=3,
    ),
    lm_infinite_case(
        "top-k-decoded",
        "global=3,local=12,limit=12,top_k=4,top_k_from=1,top_k_at=30,form=official",
        60,
        64,
        **MQA_128,
        seed=5,
        calls=[1],
        layer=7,
    ),
    lm_infinite_case(
        "top-k-infllm",
        "global=6,local=20,top_k=6,top_k_from=0,top_k_at=15,form=infllm",
        130,
        64,
        **GQA_96,
        seed=4,
        calls=[64, 41],
    ),
    lm_infinite_case(
        "tie-zero-keys",
        "global=4,local=16,limit=16,top_k=5,top_k_from=0,top_k_at=12,form=official",
        80,
        64,
        **MQA_64,
        calls=[60],
        inputs="zero-keys",
    ),
    lm_infinite_case(
        "tie-repeated-keys",
        "global=4,local=16,limit=16,top_k=5,top_k_from=0,top_k_at=12,form=official",
        100,
        64,
        **GQA_64,
        calls=[80],
        inputs="repeated-keys",
        period=9,
    ),
]


def infllm_case(name, spec, n, calls, *, trained_window=64, per_head="off", compat="none", **rest):
    return Case(
        f"infllm-{name}",
        f"infllm,{spec},per_head={per_head},compat={compat}",
        run_infllm,
        n=n,
        trained_window=trained_window,
        calls=calls,
        **rest,
    )


SMALL = "n_init=6,n_local=32,block=8,top_k=3,representatives=2,exec_block=16"
UNEVEN = "n_init=5,n_local=21,block=6,top_k=2,representatives=3,exec_block=13"
# The last prompt token is a call of its own, as in the official generation.
INFLLM = [
    infllm_case("mha", SMALL, 160, [127, 1], **MHA_64),
    infllm_case("gqa", SMALL, 170, [96, 32, 7, 1], **GQA_64, seed=18),
    infllm_case("mqa", SMALL, 150, [119, 1], **MQA_128),
    infllm_case("mha-128", SMALL, 130, [103, 1], **MHA_128),
    infllm_case("mqa-96", UNEVEN, 110, [80, 1], **MQA_96),
    infllm_case("yarn", SMALL, 130, [103, 1], **GQA_64, frequencies=YARN),
    infllm_case("uneven", UNEVEN, 140, [20, 1, 40, 33, 1, 2], **GQA_96, seed=29),
    infllm_case("uneven-mha", UNEVEN, 110, [21, 1, 26, 27], **MHA_96, seed=8),
    infllm_case("decoded", UNEVEN, 90, [1], **MQA_64, seed=9),
    infllm_case(
        "exec-block-of-window",
        "n_init=4,n_local=24,block=12,top_k=2,representatives=1,exec_block=24",
        150,
        [100, 1],
        **GQA_128,
    ),
    infllm_case(
        "blocks-above-window",
        "n_init=9,n_local=10,block=15,top_k=1,representatives=4,exec_block=7",
        130,
        [70, 29, 1],
        **MHA_64,
    ),
    infllm_case(
        "all-blocks",
        "n_init=4,n_local=24,block=8,top_k=20,representatives=4,exec_block=16",
        140,
        [99, 1],
        **GQA_64,
    ),
    infllm_case(
        "within-window",
        "n_init=4,n_local=100,block=8,top_k=2,representatives=4,exec_block=32",
        100,
        [70, 1],
        trained_window=128,
        **GQA_96,
    ),
    # Long enough for whatever an engine keeps of the newest tokens to be used over again.
    infllm_case(
        "many-pages",
        "n_init=6,n_local=40,block=16,top_k=3,representatives=3,exec_block=32",
        800,
        [300, 461, 1],
        **MQA_64,
    ),
    infllm_case("per-head", SMALL, 150, [119, 1], per_head="on", **GQA_64, seed=21),
    infllm_case("compat-mha", SMALL, 150, [24, 95, 1], compat="all", **MHA_64, seed=32),
    infllm_case("compat-gqa", UNEVEN, 130, [60, 44, 1], compat="all", **GQA_96, seed=7),
    infllm_case("compat-per-head", UNEVEN, 110, [91, 1], compat="all", per_head="on", **MQA_128, seed=16),
    # Representatives are all of a block, so that only blocks tie.
    infllm_case(
        "tie-zero-keys",
        "n_init=6,n_local=32,block=8,top_k=3,representatives=8,exec_block=16",
        130,
        [100, 1],
        inputs="zero-keys",
        **MQA_64,
    ),
    infllm_case(
        "tie-repeated-keys",
        "n_init=6,n_local=32,block=8,top_k=3,representatives=8,exec_block=16",
        130,
        [100, 1],
        inputs="repeated-keys",
        period=8,
        **GQA_64,
    ),
]

CASES = FULL + SELF_EXTEND + REROPE + STREAMING_LLM + LM_INFINITE + INFLLM
