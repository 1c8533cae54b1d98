"""Writes tests/golden/rope/tables.json: RoPE frequencies and amplitudes of Hugging Face transformers.

Usage: rope_goldens.py [--out DIR]

Each table comes from the function that transformers' ROPE_INIT_FUNCTIONS holds for its type, in float32. The "format"
entry of the file says how to read it.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

FORMAT = {
    "type": "the key of ROPE_INIT_FUNCTIONS",
    "base": "RoPE base b",
    "head_dim": "of a head; rotary_dim of them are rotated",
    "max_position": "max_position_embeddings of the configuration: dynamic's L",
    "parameters": "rope_parameters of the configuration, but for rope_type and rope_theta; null: not given",
    "n_tokens": "length of the text that the table is for; null where it makes no difference",
    "theta": "[rotary_dim / 2] radians per position, fastest pair first, as float32 computes them",
    "amplitude": "what cosines and sines are multiplied by",
}


def longrope_factors(n_pairs, last):
    """Grow from 1 to `last` as searched tables do; multiples of 1/64, which JSON and float32 hold exactly."""
    return [round(64 * last ** (m / (n_pairs - 1))) / 64 for m in range(n_pairs)]


def phi3(n_pairs):
    return {
        "short_factor": longrope_factors(n_pairs, 1.5),
        "long_factor": longrope_factors(n_pairs, 60.0),
        "original_max_position_embeddings": 4096,
    }


def yarn(original, **more):
    return {"original_max_position_embeddings": original, **more}


LLAMA31 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

# (type, base, head_dim, share of it that is rotated, max_position, parameters, n_tokens)
CASES = [
    ("linear", 1e4, 128, 1.0, 4096, {"factor": 4.0}, None),
    ("linear", 1e5, 64, 1.0, 8192, {"factor": 2.5}, None),
    ("linear", 1e4, 128, 0.5, 4096, {"factor": 8.0}, None),
    ("dynamic", 1e4, 128, 1.0, 4096, {"factor": 2.0}, 4096),
    ("dynamic", 1e4, 128, 1.0, 4096, {"factor": 2.0}, 4097),
    ("dynamic", 1e4, 128, 1.0, 4096, {"factor": 2.0}, 16384),
    ("dynamic", 1e4, 128, 1.0, 4096, {"factor": 1.0}, 32768),
    ("dynamic", 1e5, 64, 1.0, 8192, {"factor": 3.0}, 20000),
    ("yarn", 1e4, 128, 1.0, 65536, yarn(4096, factor=16.0), None),
    ("yarn", 5e5, 128, 1.0, 8192, yarn(8192, factor=4.0), None),
    ("yarn", 1e6, 128, 1.0, 32768, yarn(32768, factor=4.0), None),
    ("yarn", 1e4, 64, 1.0, 2048, yarn(2048, factor=2.0, beta_fast=16.0, beta_slow=2.0), None),
    ("yarn", 1e5, 64, 1.0, 8192, yarn(8192, factor=8.0, truncate=False), None),
    ("yarn", 1e4, 128, 1.0, 4096, yarn(4096, factor=32.0, attention_factor=1.5), None),
    ("yarn", 1e4, 64, 1.0, 4096, yarn(4096, factor=40.0, mscale=1.0, mscale_all_dim=0.707), None),
    ("yarn", 1e4, 64, 1.0, 4096, yarn(4096, factor=40.0, mscale=0.707), None),
    ("yarn", 1e4, 64, 1.0, 163840, yarn(4096, factor=None), None),
    ("yarn", 1e4, 128, 0.5, 4096, yarn(4096, factor=4.0), None),
    ("llama3", 5e5, 128, 1.0, 131072, LLAMA31, None),
    ("llama3", 5e5, 64, 1.0, 131072, {**LLAMA31, "factor": 32.0}, None),
    ("llama3", 1e4, 128, 1.0, 65536, {**LLAMA31, "low_freq_factor": 2.0, "high_freq_factor": 16.0}, None),
    ("longrope", 1e4, 96, 1.0, 131072, phi3(48), 4096),
    ("longrope", 1e4, 96, 1.0, 131072, phi3(48), 4097),
    ("longrope", 1e4, 96, 1.0, 131072, {**phi3(48), "factor": 16.0}, 100000),
    ("longrope", 1e4, 96, 1.0, 131072, {**phi3(48), "attention_factor": 1.25}, 100),
    ("longrope", 1e4, 96, 1.0, 4096, phi3(48), 100),
]


def table(kind, base, head_dim, share, max_position, parameters, n_tokens):
    config = LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=max_position,
        rope_parameters={
            "rope_type": kind,
            "rope_theta": base,
            "partial_rotary_factor": share,
            **parameters,
        },
    )
    theta, amplitude = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=n_tokens)
    return {
        "type": kind,
        "base": base,
        "head_dim": head_dim,
        "rotary_dim": 2 * len(theta),
        "max_position": max_position,
        "parameters": parameters,
        "n_tokens": n_tokens,
        # The shortest decimal numbers that are these float32 values.
        "theta": [float(np.format_float_positional(t, unique=True)) for t in theta.numpy()],
        "amplitude": float(amplitude),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=root / "tests/golden/rope")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(table(*case)) for case in CASES]
    text = '{"format": %s,\n"tables": [\n%s\n]}\n' % (json.dumps(FORMAT, indent=1), ",\n".join(lines))
    (out / "tables.json").write_text(text)


if __name__ == "__main__":
    main()
