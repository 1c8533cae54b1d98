"""Deterministic test inputs that any language can make in a few lines, so that goldens need not hold them.

Element x of the array NAME under a seed (x is the flat row-major index) is

    state = FNV-1a-64(NAME as ASCII) xor seed
    u     = splitmix64 finaliser of (state + (x + 1) * 0x9E3779B97F4A7C15)      (mod 2^64)
    value = (u >> 40) * 2^-23 - 1                                              (in [-1, 1), exact in float32)

where the finaliser is z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27; z *= 0x94D049BB133111EB;
z ^= z >> 31. Elements of a longer array begin with those of a shorter one.
"""

import numpy as np

GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def fnv1a_64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode("ascii"):
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def uniform(name, seed, shape):
    """float32 array of the given shape with values in [-1, 1)."""
    state = np.uint64(fnv1a_64(name) ^ seed)
    with np.errstate(over="ignore"):
        z = state + np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64) * np.uint64(GOLDEN_GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0).astype(np.float32).reshape(shape)
