"""RoPE schedules in float64 with numpy alone, from the parameters of a transformers configuration: what the exact
logits of llama_float64.py rotate by. tools/oracle/rope_goldens.py has the float32 tables of transformers itself.
"""

import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from common import frequencies  # noqa: E402


def schedule(config, rope, n_tokens):
    """(theta [head_dim / 2], amplitude) for a call after which the text has n_tokens; rope: rope_parameters."""
    theta = frequencies(config.head_dim, config.rope_base)
    return SCHEDULES[rope["rope_type"]](theta, config, rope, n_tokens)


def linear(theta, config, rope, n_tokens):
    return theta / rope["factor"], 1.0


def dynamic(theta, config, rope, n_tokens):
    length, d = max(n_tokens, config.context_length) / config.context_length, config.head_dim
    growth = rope["factor"] * length - (rope["factor"] - 1)
    return frequencies(d, config.rope_base * growth ** (d / (d - 2))), 1.0


def yarn(theta, config, rope, n_tokens):
    d, s, pairs = config.head_dim, rope["factor"], np.arange(config.head_dim // 2)

    def pair_that_turns(times):
        length = rope["original_max_position_embeddings"]
        return d * math.log(length / (2 * math.pi * times)) / (2 * math.log(config.rope_base))

    low = max(math.floor(pair_that_turns(rope.get("beta_fast", 32))), 0)
    high = min(math.ceil(pair_that_turns(rope.get("beta_slow", 1))), d - 1)
    kept = 1 - np.clip((pairs - low) / (high - low), 0, 1)

    def magnitude(coefficient):
        return 0.1 * coefficient * math.log(s) + 1

    amplitude = magnitude(1)
    if "mscale" in rope and "mscale_all_dim" in rope:
        amplitude = magnitude(rope["mscale"]) / magnitude(rope["mscale_all_dim"])
    return kept * theta + (1 - kept) * theta / s, rope.get("attention_factor", amplitude)


def llama3(theta, config, rope, n_tokens):
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * theta / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return kept * theta + (1 - kept) * theta / rope["factor"], 1.0


def longrope(theta, config, rope, n_tokens):
    original = rope["original_max_position_embeddings"]
    factors = rope["long_factor" if n_tokens > original else "short_factor"]
    amplitude = math.sqrt(1 + math.log(config.context_length / original) / math.log(original))
    return theta / np.array(factors), rope.get("attention_factor", amplitude)


SCHEDULES = {"linear": linear, "dynamic": dynamic, "yarn": yarn, "llama3": llama3, "longrope": longrope}
