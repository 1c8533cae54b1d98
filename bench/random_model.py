"""Writes a Llama of random weights as GGUF: for speed, without a download.

    python3 bench/random_model.py 1.1B Q4_K_M out.gguf [--vocabulary FILE.gguf] [--seed N]

It has the shape and the types of a real model, the vocabulary of FILE (the default model's), and says that it was trained
on 131072 tokens, so that every engine loads it and reads prompts of any length. What it answers means nothing, but its
logits are finite: weights have a mean of 0 and a deviation of 0.02. The same seed gives the same file.
"""

import argparse
import os
import pathlib
import random
import struct

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "longheads"
DEFAULT_MODEL = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"

# layers, width, query heads, key/value heads, feed-forward, RoPE base: TinyLlama 1.1B, Llama 3.2 3B, Llama 2 7B.
SHAPES = {
    "1.1B": (22, 2048, 32, 4, 5632, 10000.0),
    "3B": (28, 3072, 24, 8, 8192, 500000.0),
    "7B": (32, 4096, 32, 32, 11008, 10000.0),
    "test": (2, 256, 4, 2, 512, 10000.0),
}
WINDOW = 131072
DEVIATION = 0.02
ALIGNMENT = 32
TILE = 4096  # blocks that are drawn; tensors repeat them from different places on


def half(value):
    return struct.pack("<e", value)


def q4_0(draw):
    return half(DEVIATION / 4.61) + draw(16)


def q4_1(draw):
    d = DEVIATION / 4.61
    return half(d) + half(-7.5 * d) + draw(16)


def q8_0(draw):
    return half(DEVIATION / 73.9) + draw(32)


# Six-bit scales and minima, all 32, as Q4_K and Q5_K pack them.
SCALES = bytes([0xA0] * 8 + [0] * 4)


def q4_k(draw):
    d = DEVIATION / (4.61 * 32)
    return half(d) + half(7.5 * d) + SCALES + draw(128)


def q5_k(draw):
    d = DEVIATION / (9.23 * 32)
    return half(d) + half(15.5 * d) + SCALES + draw(32 + 128)


def q6_k(draw):
    return draw(128 + 64) + bytes([16] * 16) + half(DEVIATION / (18.47 * 16))


# number in GGUF, elements of a block, a block
TYPES = {
    "Q4_0": (2, 32, q4_0),
    "Q4_1": (3, 32, q4_1),
    "Q8_0": (8, 32, q8_0),
    "Q4_K": (12, 256, q4_k),
    "Q5_K": (13, 256, q5_k),
    "Q6_K": (14, 256, q6_k),
}
F32 = 0
# What general.file_type calls a file of these types; some engines do not load one without it.
FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K": 14, "Q4_K_M": 15, "Q5_K": 16, "Q5_K_M": 17, "Q6_K": 18}


def type_of(name, layer, n_layers, mix):
    """The type of a matrix: mixes of K-quants give more bits to some, as llama.cpp does."""
    if not mix.endswith("_M"):
        return "Q8_0" if name == "output" and mix in ("Q4_0", "Q4_1") else mix
    more = layer < n_layers // 8 or layer >= 7 * n_layers // 8 or (layer - n_layers // 8) % 3 == 2
    if name == "output" or (name in ("attn_v", "ffn_down") and more):
        return "Q6_K"
    return mix[:-2]


class Metadata:
    """Key/value pairs of a GGUF file."""

    def __init__(self):
        self.pairs = []

    def add(self, key, kind, packed):
        name = key.encode()
        self.pairs.append(struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + packed)

    def text(self, key, value):
        self.add(key, 8, struct.pack("<Q", len(value)) + value.encode())

    def whole(self, key, value):
        self.add(key, 4, struct.pack("<I", value))

    def real(self, key, value):
        self.add(key, 6, struct.pack("<f", value))

    def copy(self, path, wanted):
        """The pairs of another file whose keys `wanted` takes, byte for byte. Gives the number of its tokens."""
        data = pathlib.Path(path).read_bytes()
        if data[:4] != b"GGUF":
            raise SystemExit(f"{path} is no GGUF file: name one with --vocabulary")
        (n_pairs,) = struct.unpack_from("<Q", data, 16)
        at, n_tokens = 24, 0
        for _ in range(n_pairs):
            begin = at
            (length,) = struct.unpack_from("<Q", data, at)
            key = data[at + 8 : at + 8 + length].decode()
            at += 8 + length
            (kind,) = struct.unpack_from("<I", data, at)
            if key == "tokenizer.ggml.tokens":
                (n_tokens,) = struct.unpack_from("<Q", data, at + 8)
            at = self.skip(data, at + 4, kind)
            if wanted(key):
                self.pairs.append(data[begin:at])
        return n_tokens

    @staticmethod
    def skip(data, at, kind):
        sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
        if kind == 8:
            return at + 8 + struct.unpack_from("<Q", data, at)[0]
        if kind == 9:
            element, n = struct.unpack_from("<IQ", data, at)
            at += 12
            if element in sizes:
                return at + n * sizes[element]
            for _ in range(n):
                at = Metadata.skip(data, at, element)
            return at
        return at + sizes[kind]


def tensors(shape, n_tokens, mix):
    """name, dimensions as GGUF has them (rows last), type"""
    layers, width, heads, kv_heads, ffn, _ = shape
    kv_width = width // heads * kv_heads
    yield "token_embd.weight", (width, n_tokens), type_of("token_embd", 0, layers, mix)
    for layer in range(layers):
        yield f"blk.{layer}.attn_norm.weight", (width,), None
        yield f"blk.{layer}.ffn_norm.weight", (width,), None
        for name, rows, columns in [("attn_q", width, width), ("attn_k", kv_width, width), ("attn_v", kv_width, width),
                                    ("attn_output", width, width), ("ffn_gate", ffn, width), ("ffn_up", ffn, width),
                                    ("ffn_down", width, ffn)]:
            yield (f"blk.{layer}.{name}.weight", (columns, rows), type_of(name, layer, layers, mix))
    yield "output_norm.weight", (width,), None
    yield "output.weight", (width, n_tokens), type_of("output", 0, layers, mix)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("types", choices=[*TYPES, "Q4_K_M", "Q5_K_M"])
    parser.add_argument("out")
    parser.add_argument("--vocabulary", default=DEFAULT_MODEL, help="a GGUF file whose vocabulary is taken")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    layers, width, heads, kv_heads, ffn, base = SHAPES[arguments.shape]
    metadata = Metadata()
    metadata.text("general.architecture", "llama")
    metadata.text("general.name", f"random {arguments.shape} {arguments.types}")
    metadata.whole("general.file_type", FILE_TYPES[arguments.types])
    metadata.whole("general.quantization_version", 2)
    n_tokens = metadata.copy(arguments.vocabulary, lambda key: key.startswith("tokenizer."))
    metadata.whole("llama.vocab_size", n_tokens)
    metadata.whole("llama.context_length", WINDOW)
    metadata.whole("llama.block_count", layers)
    metadata.whole("llama.embedding_length", width)
    metadata.whole("llama.feed_forward_length", ffn)
    metadata.whole("llama.attention.head_count", heads)
    metadata.whole("llama.attention.head_count_kv", kv_heads)
    metadata.whole("llama.rope.dimension_count", width // heads)
    metadata.real("llama.attention.layer_norm_rms_epsilon", 1e-5)
    metadata.real("llama.rope.freq_base", base)

    drawn = random.Random(arguments.seed)
    tiles = {name: [block(drawn.randbytes) for _ in range(TILE)] for name, (_, _, block) in TYPES.items()}

    def pieces(dimensions, kind):
        """The bytes of a tensor, some megabytes at a time."""
        if kind is None:
            yield struct.pack("<f", 1.0) * dimensions[0]
            return
        blocks = dimensions[0] * dimensions[1] // TYPES[kind][1]
        while blocks > 0:
            at, n = drawn.randrange(TILE), min(blocks, 8 * TILE)
            turned = tiles[kind][at:] + tiles[kind][:at]
            yield (b"".join(turned) * 8)[: n * len(turned[0])]
            blocks -= n

    def size(dimensions, kind):
        if kind is None:
            return 4 * dimensions[0]
        return dimensions[0] * dimensions[1] // TYPES[kind][1] * len(tiles[kind][0])

    all_tensors = list(tensors(SHAPES[arguments.shape], n_tokens, arguments.types))
    partial = arguments.out + ".partial"
    with open(partial, "wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(metadata.pairs)) + b"".join(metadata.pairs))
        offset = 0
        for name, dimensions, kind in all_tensors:
            number = F32 if kind is None else TYPES[kind][0]
            out.write(struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(dimensions)))
            out.write(struct.pack(f"<{len(dimensions)}Q", *dimensions) + struct.pack("<IQ", number, offset))
            offset += -(-size(dimensions, kind) // ALIGNMENT) * ALIGNMENT
        out.write(bytes(-out.tell() % ALIGNMENT))
        for _, dimensions, kind in all_tensors:
            for piece in pieces(dimensions, kind):
                out.write(piece)
            out.write(bytes(-out.tell() % ALIGNMENT))
    os.replace(partial, arguments.out)
    print(f"{arguments.out}: {os.path.getsize(arguments.out)} bytes")


if __name__ == "__main__":
    main()
