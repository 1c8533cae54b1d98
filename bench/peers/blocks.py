"""Which blocks of a prompt are timed where not all are, and what all of them take by these."""

TOKENS = 512  # of a block: what llama.cpp takes through the model at a time


def evenly(wanted, blocks):
    """`wanted` of the numbers of so many blocks, the first and the last among them; all where there are no more. wanted: 2 or more."""
    if wanted >= blocks:
        return set(range(blocks))
    return {round(i * (blocks - 1) / (wanted - 1)) for i in range(wanted)}


def sum_of_all(seconds, blocks):
    """Of {block: seconds} of some, in order and with the first and the last, what all take: others lie on a line between neighbours."""
    numbers = list(seconds)
    assert numbers[0] == 0 and numbers[-1] == blocks - 1
    total = seconds[numbers[-1]]
    for left, right in zip(numbers, numbers[1:]):
        step = (seconds[right] - seconds[left]) / (right - left)
        total += sum(seconds[left] + step * i for i in range(right - left))
    return total
