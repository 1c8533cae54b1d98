"""Writes tests/golden/quantised: blocks of every weight type, and their float32 values by the `gguf` package.

Needs Python 3.11 with gguf==0.19.0 and numpy==2.4.6. NAME.blocks holds the bytes as a GGUF file would, NAME.f32
the little-endian float32 values in the same order. Bytes are random from a fixed seed; scales are finite, of
both signs, some of them zero or subnormal.
"""

import pathlib
import sys

import gguf
import numpy as np

# name: (blocks, byte offset of each float16 scale in a block)
BLOCKS = {
    "Q4_0": (12, [0]),
    "Q4_1": (12, [0, 2]),
    "Q5_0": (12, [0]),
    "Q5_1": (12, [0, 2]),
    "Q8_0": (12, [0]),
    "Q4_K": (3, [0, 2]),
    "Q5_K": (3, [0, 2]),
    "Q6_K": (3, [208]),
}
SPECIAL_HALVES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0x3C00, 0xFBFF], np.uint16)


def half_scales(rng, n):
    """n float16 bit patterns of about 2^-12 .. 2^2, the first of them special where there are enough."""
    values = (rng.choice([-1.0, 1.0], n) * np.exp2(rng.uniform(-12, 2, n))).astype(np.float16).view(np.uint16)
    if n >= 12:
        values[: len(SPECIAL_HALVES)] = SPECIAL_HALVES
    return values


def quantised_bytes(rng, name):
    n_blocks, scale_offsets = BLOCKS[name]
    _, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = rng.integers(0, 256, (n_blocks, block_bytes), dtype=np.uint8)
    for offset in scale_offsets:
        blocks[:, offset : offset + 2] = half_scales(rng, n_blocks).view(np.uint8).reshape(n_blocks, 2)
    return blocks


def float_bytes(rng, name):
    """100 finite values, so that every vector width has a remainder."""
    if name == "F32":
        values = (rng.standard_normal(100) * np.exp2(rng.uniform(-20, 20, 100))).astype(np.float32)
        return values.view(np.uint8).reshape(1, -1)
    bits = rng.integers(0, 1 << 16, 100, dtype=np.uint16)
    exponent = np.uint16(0x7C00 if name == "F16" else 0x7F80)
    bits = np.where((bits & exponent) == exponent, bits & ~exponent, bits)  # no infinities, no NaN
    bits[: len(SPECIAL_HALVES)] = SPECIAL_HALVES if name == "F16" else SPECIAL_HALVES & np.uint16(0x807F)
    return bits.astype(np.uint16).view(np.uint8).reshape(1, -1)


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/quantised")
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20240501)
    for name in ["F32", "F16", "BF16", *BLOCKS]:
        data = quantised_bytes(rng, name) if name in BLOCKS else float_bytes(rng, name)
        values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name]).astype("<f4").ravel()
        assert np.isfinite(values).all()
        (out / f"{name}.blocks").write_bytes(data.tobytes())
        (out / f"{name}.f32").write_bytes(values.tobytes())


if __name__ == "__main__":
    main()
