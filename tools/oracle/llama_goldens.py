"""Writes tests/golden/llama: logits and greedy tokens of Hugging Face transformers in float32.

Usage: llama_goldens.py [tiny|scaled|default|all] [--model FILE] [--out DIR]

tiny.json, scaled.json and default.json describe what the .npy files beside them hold; their "format" entries say how
to read them.
"""

import argparse
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from llama_float64 import logits_float64
from llama_weights import Llama, gguf_weights, hugging_face_model, tiny_weights, uniform
from rope_float64 import schedule
from rope_goldens import longrope_factors

TINY = {
    "mha-untied": Llama(n_heads=4, n_kv_heads=4, tied=False, seed=1),
    "gqa-tied": Llama(n_heads=6, n_kv_heads=2, embed=96, seed=2),
    "gqa-biases": Llama(n_heads=6, n_kv_heads=2, embed=96, attention_biases=True, seed=3),
    "mqa": Llama(n_heads=4, n_kv_heads=1, seed=4),
    "wide-heads": Llama(n_heads=4, n_kv_heads=2, embed=64, head_dim=32, tied=False, seed=5),
    "rope-base-100000": Llama(
        n_layers=3, rope_base=100000.0, rms_epsilon=1e-6, vocab_size=300, ffn=128, seed=6
    ),
}
TINY_TOKENS = 96
TINY_POSITIONS = [0, 1, 2, 15, 16, 31, 33, 63, 64, 94, 95]

TINY_FORMAT = {
    "options": "the fields of TinyLlamaOptions in tests/support/gguf_builder.h; weights in float32",
    "tokens": "ids fed to the model, none added",
    "CASE.logits.npy": (
        "float32 [len(positions), vocab_size]: logits after the token at each of the positions"
    ),
    "exact_error": (
        "largest |float32 - float64| over these logits: how far transformers is from the exact value"
    ),
    "largest": "largest |logit|",
}


@dataclass
class Scaled:
    """A tiny model under a RoPE schedule: rope_parameters as transformers reads them, but for the base. Its
    context_length is max_position_embeddings."""

    model: Llama
    rope: dict
    n_tokens: int = TINY_TOKENS
    n_at_once: int = TINY_TOKENS  # of them in the first call; those after it come one by one, with a cache


# Texts go past the window from which the scaling starts, but where the short factors of LongRoPE are meant.
WINDOW = 64
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": WINDOW}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": WINDOW,
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": longrope_factors(8, 2.0),
    "long_factor": longrope_factors(8, 12.0),
    "original_max_position_embeddings": WINDOW,
}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
SCALED = {
    "linear": Scaled(Llama(context_length=4 * WINDOW, seed=11), {"rope_type": "linear", "factor": 4.0}),
    "yarn": Scaled(Llama(context_length=4 * WINDOW, seed=12), YARN),
    "yarn-tuned": Scaled(
        Llama(context_length=4 * WINDOW, head_dim=32, seed=13),
        {**YARN, "beta_fast": 4.0, "beta_slow": 0.5, "attention_factor": 1.25},
    ),
    "yarn-mscale": Scaled(
        Llama(context_length=4 * WINDOW, n_kv_heads=4, seed=14),
        {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
    ),
    "llama3": Scaled(Llama(context_length=8 * WINDOW, n_kv_heads=1, seed=15), LLAMA3),
    "longrope-long": Scaled(Llama(context_length=4 * WINDOW, seed=16), LONGROPE),
    "longrope-short": Scaled(
        Llama(context_length=4 * WINDOW, seed=17), {**LONGROPE, "attention_factor": 1.3}, WINDOW, WINDOW
    ),
    "dynamic": Scaled(Llama(context_length=WINDOW, seed=18), DYNAMIC),
    "dynamic-one-by-one": Scaled(Llama(context_length=WINDOW, seed=18), DYNAMIC, n_at_once=WINDOW),
}
SCALED_POSITIONS = [0, 1, 33, 63, 64, 95]

SCALED_FORMAT = {
    **TINY_FORMAT,
    "rope_parameters": (
        "of the configuration, but for rope_theta; max_position_embeddings is context_length of the options"
    ),
    "amplitude": "what transformers multiplies cosines and sines by",
    "divisors": "llama3 alone: own frequencies over scaled ones, which converters to GGUF write as rope_freqs",
    "n_at_once": "tokens in the first call of the model; the others were read one by one with a cache",
}

TEXT = (
    "The lighthouse stood at the end of the pier, and every evening the keeper climbed its 213 steps to light"
    " the lamp. One night in March 1921 the wind was so strong that he could not open the door; he waited,"
    " counted the waves, and wrote in his book:"
)

# (form, text): a chat prompt is rendered with the template that the model file holds. These five go on for more
# than N_GREEDY tokens and never come near a tie, so that another float32 implementation must give the same tokens.
PROMPTS = [
    ("plain", "In the year 1492, Christopher Columbus"),
    ("plain", "def quicksort(items):\n    "),
    ("plain", "The three most important inventions of the nineteenth century were"),
    ("chat", "Explain in a few paragraphs why the sky is blue and why sunsets are red."),
    ("chat", "Summarise the history of the printing press."),
]
N_GREEDY = 64
SMALLEST_GAP = 0.005
N_SUBSET = 2000

DEFAULT_FORMAT = {
    "model": "file name; weights de-quantised to float32, Q and K rows brought back to halves",
    "tokens": "ids of the prompt whose logits are stored, none added",
    "positions": "the prompt's positions whose logits are stored",
    "default.subset.npy": "int32 [n_subset]: vocabulary ids whose logits are stored, ascending",
    "default.logits.npy": "float32 [len(positions), n_subset]",
    "default.argmax.npy": "int32 [len(tokens)]: the most likely id after every token of the prompt",
    "default.logsumexp.npy": "float32 [len(tokens)]: log of the sum of exp(logits) over the whole vocabulary",
    "default.gaps.npy": "float32 [len(tokens)]: largest logit minus the second largest",
    "exact_error": (
        "largest |float32 - float64| over the stored logits: how far transformers is from the exact value"
    ),
    "exact_logsumexp_error": "the same for logsumexp at all positions",
    "largest": "largest |logit| over all positions and ids",
    "greedy": (
        "prompts as ids, and their greedy continuations; end-of-text never occurs within them; gaps [n] are"
        " the largest logit minus the second largest at each step, so that near-ties can be recognised"
    ),
}


def run(model, tokens):
    """float32 logits [n, vocab]."""
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0].numpy()


def run_one_by_one(model, tokens, n_at_once):
    """The same, by a call for the first n_at_once tokens and one for each that follows."""
    logits, cache = [], None
    steps = [tokens[:n_at_once], *([token] for token in tokens[n_at_once:])]
    with torch.inference_mode():
        for step in steps:
            output = model(torch.tensor([step]), past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            logits.append(output.logits[0].numpy())
    return np.concatenate(logits)


def rounded(values, digits=5):
    return [round(float(value), digits) for value in values]


def top_gaps(logits):
    top = np.partition(logits, -2, axis=-1)[..., -2:]
    return np.abs(top[..., 1] - top[..., 0])


def write_json(path, content):
    """Lists of numbers take one line, so that the files stay short and their differences readable."""
    text = json.dumps(content, indent=1)
    text = re.sub(r"\[\n[^\[\]{}\"]*\]", lambda m: " ".join(m.group(0).split()), text)
    path.write_text(text + "\n")


def tiny_tokens(config, n):
    draw = uniform("tokens", config.seed, (n,)).astype(np.float64)
    return [int(x) for x in (draw + 1) / 2 * config.vocab_size]


def write_tiny(out):
    cases = []
    for name, config in TINY.items():
        weights = tiny_weights(config)
        tokens = tiny_tokens(config, TINY_TOKENS)
        logits = run(hugging_face_model(config, weights), tokens)
        exact = logits_float64(config, weights, tokens)
        assert np.abs(logits - exact).max() < 1e-3 * np.abs(exact).max()
        np.save(out / f"{name}.logits.npy", logits[TINY_POSITIONS])
        error = float(np.abs(logits - exact)[TINY_POSITIONS].max())
        cases.append(
            {
                "name": name,
                "options": asdict(config),
                "tokens": tokens,
                "positions": TINY_POSITIONS,
                "exact_error": error,
                "largest": float(np.abs(logits).max()),
            }
        )
        print(name, "error against float64", error, "largest logit", cases[-1]["largest"], flush=True)
    write_json(out / "tiny.json", {"format": TINY_FORMAT, "cases": cases})


def write_scaled(out):
    cases = []
    for name, case in SCALED.items():
        config, weights = case.model, tiny_weights(case.model)
        tokens = tiny_tokens(config, case.n_tokens)
        model = hugging_face_model(config, weights, case.rope)
        logits = run_one_by_one(model, tokens, case.n_at_once)
        # transformers takes the frequencies of the length after each call, and leaves cached keys as they are.
        lengths = [max(case.n_at_once, t + 1) for t in range(case.n_tokens)]
        theta = np.array([[schedule(config, case.rope, n)[0]] for n in lengths])
        _, amplitude = schedule(config, case.rope, case.n_tokens)
        used = model.model.rotary_emb
        assert np.allclose(used.inv_freq.numpy(), theta[-1], rtol=1e-6, atol=0)
        assert np.isclose(used.attention_scaling, amplitude, rtol=1e-6)
        exact = logits_float64(config, weights, tokens, theta, amplitude)
        assert np.abs(logits - exact).max() < 1e-3 * np.abs(exact).max()
        positions = [p for p in SCALED_POSITIONS if p < case.n_tokens]
        np.save(out / f"scaled-{name}.logits.npy", logits[positions])
        own = schedule(config, {"rope_type": "linear", "factor": 1.0}, case.n_tokens)[0]
        entry = {
            "name": f"scaled-{name}",
            "options": asdict(config),
            "rope_parameters": case.rope,
            "amplitude": float(used.attention_scaling),
            "n_at_once": case.n_at_once,
            "tokens": tokens,
            "positions": positions,
            "exact_error": float(np.abs(logits - exact)[positions].max()),
            "largest": float(np.abs(logits).max()),
        }
        if case.rope["rope_type"] == "llama3":
            entry["divisors"] = [float(x) for x in (own / theta[-1, 0]).astype(np.float32)]
        cases.append(entry)
        print(entry["name"], "error", entry["exact_error"], "amplitude", entry["amplitude"], flush=True)
    write_json(out / "scaled.json", {"format": SCALED_FORMAT, "cases": cases})


def gguf_tokenizer(path):
    """(tokenizer, chat template, end-of-text id) of a GGUF file whose pre-tokenizer is smollm."""
    import gguf
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    fields = gguf.GGUFReader(path).fields
    assert (
        fields["tokenizer.ggml.model"].contents() == "gpt2"
        and fields["tokenizer.ggml.pre"].contents() == "smollm"
    )
    tokens, types = fields["tokenizer.ggml.tokens"].contents(), fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = gguf.TokenType.CONTROL
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True) for t, kind in zip(tokens, types) if kind == control]
    )
    return (
        tokenizer,
        fields["tokenizer.chat_template"].contents(),
        fields["tokenizer.ggml.eos_token_id"].contents(),
    )


def greedy(model, tokens, n):
    """(ids, gaps) of n greedy steps with a key/value cache."""
    ids, gaps, cache, step = [], [], None, torch.tensor([tokens])
    with torch.inference_mode():
        for _ in range(n):
            output = model(step, past_key_values=cache, use_cache=True)
            cache, logits = output.past_key_values, output.logits[0, -1].numpy()
            ids.append(int(logits.argmax()))
            gaps.append(float(top_gaps(logits)))
            step = torch.tensor([[ids[-1]]])
    return ids, gaps


def write_default(out, path):
    import jinja2

    config, weights = gguf_weights(path)
    model = hugging_face_model(config, weights)
    tokenizer, template, end = gguf_tokenizer(path)

    tokens = tokenizer.encode(TEXT).ids
    n = len(tokens)
    positions = [0, 1, 7, 15, 31, 32, n - 2, n - 1]
    logits, exact = run(model, tokens), logits_float64(config, weights, tokens)
    # The ids that matter most are always among the stored ones.
    order = np.argsort(uniform("subset", 1, (config.vocab_size,)), kind="stable")
    wanted = set(logits[positions].argmax(axis=1).tolist()) | {
        int(x) for x in logits[positions].argmin(axis=1)
    }
    chosen = sorted(wanted | set(order[: N_SUBSET - len(wanted)].tolist()))
    highest = logits.astype(np.float64).max(axis=1, keepdims=True)
    logsumexp = (highest + np.log(np.exp(logits - highest).sum(axis=1, keepdims=True)))[:, 0]
    highest = exact.max(axis=1, keepdims=True)
    exact_logsumexp = (highest + np.log(np.exp(exact - highest).sum(axis=1, keepdims=True)))[:, 0]
    subset = np.array(chosen, dtype=np.int32)
    np.save(out / "default.subset.npy", subset)
    np.save(out / "default.logits.npy", np.ascontiguousarray(logits[positions][:, subset]))
    np.save(out / "default.argmax.npy", logits.argmax(axis=1).astype(np.int32))
    np.save(out / "default.logsumexp.npy", logsumexp.astype(np.float32))
    np.save(out / "default.gaps.npy", top_gaps(logits))
    manifest = {
        "format": DEFAULT_FORMAT,
        "model": path.name,
        "text": TEXT,
        "tokens": tokens,
        "positions": positions,
        "n_subset": len(chosen),
        "exact_error": float(np.abs(logits - exact)[positions][:, subset].max()),
        "exact_logsumexp_error": float(np.abs(logsumexp - exact_logsumexp).max()),
        "largest": float(np.abs(logits).max()),
        "greedy": [],
    }
    print(
        "prompt of",
        n,
        "tokens, error against float64",
        manifest["exact_error"],
        "over all ids",
        np.abs(logits - exact).max(),
        "mean",
        np.abs(logits - exact).mean(),
        "logsumexp",
        manifest["exact_logsumexp_error"],
        "largest",
        manifest["largest"],
        "smallest gap",
        top_gaps(logits).min(),
        flush=True,
    )
    assert (logits.argmax(axis=1) == exact.argmax(axis=1)).all()

    for form, text in PROMPTS:
        prompt = text
        if form == "chat":
            messages = [{"role": "user", "content": text}]
            prompt = jinja2.Template(template).render(messages=messages, add_generation_prompt=True)
        ids = tokenizer.encode(prompt).ids
        continuation, gaps = greedy(model, ids, N_GREEDY)
        # The same tokens in one pass: decoding with a cache and prefill must agree.
        whole = run(model, ids + continuation)[len(ids) - 1 : -1]
        assert whole.argmax(axis=1).tolist() == continuation
        assert not {end, 0} & set(continuation) and min(gaps) > SMALLEST_GAP
        print(form, len(ids), "smallest gap", min(gaps), repr(tokenizer.decode(continuation)), flush=True)
        manifest["greedy"].append(
            {
                "form": form,
                "prompt": prompt,
                "tokens": ids,
                "continuation": continuation,
                "text": tokenizer.decode(continuation),
                "gaps": rounded(gaps),
            }
        )
    write_json(out / "default.json", manifest)


def main():
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longheads"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("tiny", "scaled", "default", "all"), default="all")
    parser.add_argument("--model", type=Path, default=cache / "SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/llama"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.what in ("tiny", "all"):
        write_tiny(arguments.out)
    if arguments.what in ("scaled", "all"):
        write_scaled(arguments.out)
    if arguments.what in ("default", "all"):
        write_default(arguments.out, arguments.model)


if __name__ == "__main__":
    main()
