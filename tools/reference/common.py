"""Softmax and rotary rotation in float64, shared by the naive twins of the attention methods."""

import numpy as np


def softmax(logits):
    """Softmax along the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def frequencies(head_dim, base):
    """theta_m = base^(-2m/d) for the pairs m = 0..d/2-1; of a function in the base's place, what it says."""
    if callable(base):
        return base(head_dim)
    return base ** (-2.0 * np.arange(head_dim // 2) / head_dim)


def rotate(x, positions, theta):
    """R(position) applied to vectors in the half-split layout of Hugging Face weights: pair m is (x[m], x[m
    + d/2]).

    x: [..., d]; positions: scalar or [...], one for each vector; theta: [d/2].
    """
    angles = np.asarray(positions, dtype=np.float64)[..., None] * theta
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
