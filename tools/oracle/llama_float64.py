"""The Llama forward pass in float64 with numpy alone, to tell how far a float32 run is from the exact logits."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from common import frequencies, rotate, softmax  # noqa: E402


def rms_norm(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * weight


def logits_float64(config, weights, tokens, theta=None, amplitude=1.0):
    """[n, vocab] for the token ids [n]. theta: frequencies in the place of the base's, [head_dim / 2], or [n, 1,
    head_dim / 2] where every token has its own; queries and keys are multiplied by amplitude.
    """
    n, at = len(tokens), np.arange(len(tokens))[:, None]
    theta = frequencies(config.head_dim, config.rope_base) if theta is None else theta
    group, causal = config.n_heads // config.n_kv_heads, np.tri(n) > 0

    def linear(x, name):
        y = x @ weights[f"{name}.weight"].astype(np.float64).T
        return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y

    def norm(x, name):
        return rms_norm(x, weights[f"{name}.weight"].astype(np.float64), config.rms_epsilon)

    x = weights["token_embd.weight"][tokens].astype(np.float64)
    for layer in range(config.n_layers):
        block = f"blk.{layer}."
        hidden = norm(x, block + "attn_norm")
        q = rotate(linear(hidden, block + "attn_q").reshape(n, config.n_heads, -1), at, theta)
        k = rotate(linear(hidden, block + "attn_k").reshape(n, config.n_kv_heads, -1), at, theta)
        v = linear(hidden, block + "attn_v").reshape(n, config.n_kv_heads, -1)
        out = np.empty_like(q)
        for h in range(config.n_heads):
            scores = amplitude**2 * (q[:, h] @ k[:, h // group].T) / np.sqrt(config.head_dim)
            out[:, h] = softmax(np.where(causal, scores, -np.inf)) @ v[:, h // group]
        x = x + linear(out.reshape(n, -1), block + "attn_output")
        hidden = norm(x, block + "ffn_norm")
        gate = linear(hidden, block + "ffn_gate")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(hidden, block + "ffn_up"), block + "ffn_down")
    hidden = norm(x, "output_norm")
    return linear(hidden, "token_embd" if config.tied else "output")
