"""Frequency schedules for the twins, each written from its paper's formula: what takes the place of the table of
the base in a case of the goldens.

Tables alone are held to Hugging Face's (tools/oracle/rope_goldens.py). These are here so that methods meet
frequencies that are no powers of one number, and an amplitude.
"""

from dataclasses import dataclass

import numpy as np


@dataclass
class Yarn:
    """YaRN (Peng et al. 2023) in the form of its code: pairs that turn more than 32 times over the trained
    window keep their frequency, those that turn less than once have it divided by s, and between the two, by
    their whole numbers, it goes from one to the other linearly."""

    factor: int  # s

    def spec(self):
        return f"yarn:factor={self.factor}"

    def amplitude(self):
        return 0.1 * np.log(self.factor) + 1

    def theta(self, head_dim, base, trained_window):
        pair = np.arange(head_dim // 2)
        own = base ** (-2.0 * pair / head_dim)

        def pair_that_turns(times):
            return head_dim * np.log(trained_window / (2 * np.pi * times)) / (2 * np.log(base))

        low = max(np.floor(pair_that_turns(32)), 0)
        high = min(np.ceil(pair_that_turns(1)), head_dim - 1)
        share = np.clip((pair - low) / (high - low), 0, 1)  # of the interpolated frequency
        return own * (1 - share) + own / self.factor * share
