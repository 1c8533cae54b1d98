"""What a dense method's token gives its attention to, computed from the method's definition alone.

Usage: attended_mass.py TRACE [--attn full|pi|rerope|leaky-rerope] [--window W] [--factor K] [--step N] [--model FILE]

TRACE is of `longheads eval passkey --trace DIR`, for the prompt's tokens and the key's place. The prompt goes through
the default model (or FILE) in float32 with numpy, without anything of the program: an independent run of full
attention, PI (positions divided by K), ReRoPE and Leaky ReRoPE (these without log n, which is 1 up to its base) to hold
against the program's answer. Printed: the likeliest next tokens behind the prompt and the first N tokens of the
recorded answer (0); of the softmax mass of the last of these tokens, layer by layer, what lies on the first token, on
the sentences that say the key, on the chat question (from the first token behind the filler), and on the rest, the
filler; and the heads that give the key the most. Needs numpy and gguf (tools/oracle/requirements.txt); 8192 tokens take
some minutes.
"""

import argparse
import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / folder) for folder in ("trace", "oracle", "reference")]
from common import frequencies  # noqa: E402
from llama_weights import gguf_weights  # noqa: E402
from read_trace import key_range, read_trace  # noqa: E402

DEFAULT_MODEL = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "longheads"
DEFAULT_MODEL /= "SmolLM2-135M-Instruct.Q4_1.gguf"
QUERIES = 512  # at a time


def turned(x, positions, theta):
    """R(position) x in the half-split layout, float32; x [n, heads, d], positions [n]."""
    angles = np.asarray(positions, dtype=np.float64)[:, None, None] * theta
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


class Distances:
    """Queries and keys turned so that a near key meets a query at its distance, and a far one as the method says."""

    def __init__(self, options, q, k, theta):
        at = np.arange(len(q))
        dense = options.attn in ("full", "pi")
        self.window = len(q) if dense else options.window
        self.near = turned(q, at, theta), turned(k, at, theta)
        if not dense:
            slower = 1 / options.factor if options.attn == "leaky-rerope" else 0
            begin = self.window * (1 - slower)
            self.far = turned(q, begin + at * slower, theta), turned(k, at * slower, theta)

    def logits(self, begin, end, head, kv_head):
        keys = np.arange(end)
        distance = np.arange(begin, end)[:, None] - keys

        def products(plane):
            q, k = plane
            return q[begin:end, head] @ k[:end, kv_head].T / np.float32(np.sqrt(q.shape[-1]))

        result = products(self.near)
        if self.window < end:
            result = np.where(distance < self.window, result, products(self.far))
        return np.where(distance >= 0, result, np.float32(-np.inf))


def run(config, weights, tokens, options):
    """The logits behind the last token, and its softmax [layers, heads, n]."""
    n, group = len(tokens), config.n_heads // config.n_kv_heads
    theta = frequencies(config.head_dim, config.rope_base) / (options.factor if options.attn == "pi" else 1)
    masses = np.zeros((config.n_layers, config.n_heads, n), dtype=np.float32)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + config.rms_epsilon) * weights[f"{name}.weight"]

    x = weights["token_embd.weight"][tokens]
    for layer in range(config.n_layers):
        block = f"blk.{layer}."
        hidden = norm(x, block + "attn_norm")
        q, k, v = (
            (hidden @ weights[f"{block}attn_{name}.weight"].T).reshape(n, -1, config.head_dim) for name in "qkv"
        )
        distances, out = Distances(options, q, k, theta), np.empty_like(q)
        for head in range(config.n_heads):
            for begin in range(0, n, QUERIES):
                end = min(n, begin + QUERIES)
                p = distances.logits(begin, end, head, head // group)
                p = np.exp(p - p.max(axis=-1, keepdims=True))
                p /= p.sum(axis=-1, keepdims=True)
                out[begin:end, head] = p @ v[:end, head // group]
            masses[layer, head] = p[-1]
        x = x + out.reshape(n, -1) @ weights[block + "attn_output.weight"].T
        hidden = norm(x, block + "ffn_norm")
        gate = hidden @ weights[block + "ffn_gate.weight"].T
        up = hidden @ weights[block + "ffn_up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[block + "ffn_down.weight"].T
        print(f"\rlayer {layer + 1} of {config.n_layers}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    last = norm(x[-1:], "output_norm")[0]
    return weights["token_embd.weight" if config.tied else "output.weight"] @ last, masses


def prompt_of(trace, step):
    """The tokens that the model read before it answered, and `step` of the answer; their texts; and the key's tokens
    [begin, end)."""
    ids, texts, needle, end = [], [], None, None
    for part in read_trace(pathlib.Path(trace).read_bytes()):
        if part["kind"] == "header":
            needle = part.get("needle")
        elif part["kind"] == "tokens":
            ids += part["ids"]
            texts += part["raw"]
        elif part["kind"] == "selection" and end is None:
            end = part["position"] + 1 + step
    if not needle:
        sys.exit(f"{trace}: it does not say where the key is: make it with `longheads eval passkey --trace DIR`")
    key = key_range(texts, needle["begin"], needle["end"])
    return ids[:end], [text.decode("utf-8", "replace") for text in texts[:end]], key


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--attn", choices=("full", "pi", "rerope", "leaky-rerope"), default="full")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--factor", type=float, default=16)
    parser.add_argument("--step", type=int, default=0)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    options = parser.parse_args()

    tokens, texts, (key_begin, key_end) = prompt_of(options.trace, options.step)
    config, weights = gguf_weights(options.model)
    logits, masses = run(config, weights, tokens, options)

    p = np.exp(logits - logits.max())
    p /= p.sum()
    named = dict(zip(tokens, texts))
    likeliest = ", ".join(f"{named.get(i, i)!r} ({p[i]:.3f})" for i in np.argsort(-p)[:5].tolist())
    print("likeliest next tokens:", likeliest)
    print(f"the key: {''.join(texts[key_begin:key_end])!r}")
    question = max(i for i, text in enumerate(texts) if text.strip() == "again") + 1
    parts = {"first": slice(0, 1), "key": slice(key_begin, key_end), "question": slice(question, None)}
    shares = {name: masses[:, :, part].sum(axis=-1) for name, part in parts.items()}
    shares["filler"] = 1 - sum(shares.values())
    print("layer " + "".join(f"{name:>10}" for name in shares) + "   heads that give the key 5% or more")
    for layer in range(config.n_layers):
        heads = [f"{h} ({shares['key'][layer, h]:.0%})" for h in range(config.n_heads) if shares["key"][layer, h] >= 0.05]
        print(f"{layer:5} " + "".join(f"{share[layer].mean():10.1%}" for share in shares.values()) + "   " + ", ".join(heads))
    print("  all " + "".join(f"{share.mean():10.1%}" for share in shares.values()))


if __name__ == "__main__":
    main()
