"""Llama weights by GGUF name in the Hugging Face layout, from two sources: a tiny generated model or a GGUF file."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from uniform import uniform  # noqa: E402


@dataclass
class Llama:
    vocab_size: int = 272
    n_layers: int = 2
    embed: int = 64
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 96
    context_length: int = 512
    rope_base: float = 10000.0
    rms_epsilon: float = 1e-5
    tied: bool = True
    attention_biases: bool = False
    seed: int = 1

    def shapes(self):
        """{GGUF name: shape, outermost first} of every tensor."""
        e, q, kv = self.embed, self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        shapes = {"token_embd.weight": (self.vocab_size, e), "output_norm.weight": (e,)}
        if not self.tied:
            shapes["output.weight"] = (self.vocab_size, e)
        for layer in range(self.n_layers):
            block = {"attn_norm.weight": (e,), "ffn_norm.weight": (e,)}
            block |= {"attn_q.weight": (q, e), "attn_k.weight": (kv, e), "attn_v.weight": (kv, e)}
            block |= {"attn_output.weight": (e, q)}
            block |= {"ffn_gate.weight": (self.ffn, e), "ffn_up.weight": (self.ffn, e)}
            block |= {"ffn_down.weight": (e, self.ffn)}
            if self.attention_biases:
                block |= {
                    "attn_q.bias": (q,),
                    "attn_k.bias": (kv,),
                    "attn_v.bias": (kv,),
                    "attn_output.bias": (e,),
                }
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
        return shapes


def tiny_weights(config):
    """float32 weights of the generated model that tests/support/gguf_builder.h documents."""
    weights = {}
    for name, shape in config.shapes().items():
        x = uniform(name, config.seed, shape)
        if "norm" in name:
            weights[name] = np.float32(1) + np.float32(0.125) * x
        elif name.endswith(".bias"):
            weights[name] = np.float32(0.125) * x
        elif name == "token_embd.weight":
            weights[name] = np.float32(0.5) * x
        else:
            gain = 2.5 if name.endswith(("attn_q.weight", "attn_k.weight")) else 1.7
            weights[name] = np.float32(gain / np.sqrt(np.float64(shape[-1]))) * x
        assert weights[name].dtype == np.float32
    return weights


def unpermute(rows, n_heads):
    """From GGUF's pairs side by side (2m, 2m+1) to Hugging Face's halves (m, m + d/2), within every head."""
    pairs = rows.reshape(n_heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def gguf_weights(path):
    """(config, float32 weights) of a Llama GGUF file, de-quantised."""
    import gguf

    reader = gguf.GGUFReader(path)

    def field(key):
        return reader.fields[f"llama.{key}"].contents()

    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = Llama(
        vocab_size=field("vocab_size"),
        n_layers=field("block_count"),
        embed=field("embedding_length"),
        n_heads=field("attention.head_count"),
        n_kv_heads=field("attention.head_count_kv"),
        head_dim=field("rope.dimension_count"),
        ffn=field("feed_forward_length"),
        context_length=field("context_length"),
        rope_base=field("rope.freq_base"),
        rms_epsilon=field("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in tensors,
    )
    weights = {}
    for name, shape in config.shapes().items():
        tensor = tensors.pop(name)
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        heads = {"attn_q": config.n_heads, "attn_k": config.n_kv_heads}.get(name.split(".")[-2])
        weights[name] = unpermute(values, heads) if heads else values
        assert weights[name].shape == shape
    assert not tensors, f"tensors that a plain Llama does not have: {sorted(tensors)}"
    return config, weights


HUGGING_FACE_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


def hugging_face_model(config, weights, rope=None):
    """transformers' LlamaForCausalLM in float32 with plain (eager) attention; rope: rope_parameters but for the
    base, plain RoPE where there are none.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            num_hidden_layers=config.n_layers,
            hidden_size=config.embed,
            num_attention_heads=config.n_heads,
            num_key_value_heads=config.n_kv_heads,
            head_dim=config.head_dim,
            intermediate_size=config.ffn,
            max_position_embeddings=config.context_length,
            rope_parameters={**(rope or {"rope_type": "default"}), "rope_theta": config.rope_base},
            rms_norm_eps=config.rms_epsilon,
            tie_word_embeddings=config.tied,
            attention_bias=config.attention_biases,
            hidden_act="silu",
            attn_implementation="eager",
        )
    )
    state = {}
    for name, values in weights.items():
        *block, stem, kind = name.split(".")
        prefix = f"model.layers.{block[1]}." if block else ""
        state[f"{prefix}{HUGGING_FACE_NAMES[stem]}.{kind}"] = torch.from_numpy(np.array(values))
    if config.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model.eval().requires_grad_(False)
