"""The naive StreamingLLM twin against caches simulated token by token, and against mutations that must not
pass."""

import numpy as np
import pytest

import streaming_llm as twin
from cases_part1 import STREAMING_LLM
from checks import (
    assert_equals_full,
    assert_outputs_follow_from_pairs,
    assert_rows_know_nothing_later,
    keys_of,
    random_inputs,
    unnoticed,
)
from streaming_llm import Options, streaming_llm

SHAPES = [(1, 7), (4, 16), (9, 5), (3, 1), (0, 6), (5, 5)]


@pytest.mark.parametrize("start,recent", SHAPES)
def test_slots_are_those_of_a_cache_that_evicts_after_every_step(start, recent):
    cache = []
    for i in range(70):
        cache.append(i)
        query = len(cache) - 1
        expected = [(j, query - slot) for slot, j in enumerate(cache)]
        assert twin.attended(i, Options(start, recent)) == expected
        if len(cache) > start + recent:
            cache = cache[:start] + cache[-recent:]


@pytest.mark.parametrize("start,recent", SHAPES)
@pytest.mark.parametrize("calls", [[1], [70], [3, 40, 1], [5, 5], [33], [30, 1, 1, 1, 20]])
def test_chunk_safe_is_what_a_cache_between_calls_gives_however_they_are_cut(start, recent, calls):
    # The cache keeps the sinks and the last `recent` tokens; the window and its complement do the rest.
    cache, n = [], 70
    for length in calls + [1] * (n - sum(calls)):
        new = list(range(cache[-1] + 1, cache[-1] + 1 + length)) if cache else list(range(length))
        present = cache + new
        for i in new:
            near = {j: i - j for j in present if 0 <= i - j < recent}
            sinks = {j: recent + start - 1 - j for j in present[:start] if i - j >= recent}
            assert twin.attended(i, Options(start, recent, "chunk-safe")) == sorted((near | sinks).items())
        if present[-1] + 1 > start + recent:
            present = present[:start] + present[max(len(present) - recent, start) :]
        cache = present


def test_rows_of_both_forms():
    assert twin.attended(20, Options(2, 3)) == [(0, 5), (1, 4), (17, 3), (18, 2), (19, 1), (20, 0)]
    chunk_safe = Options(2, 3, "chunk-safe")
    assert twin.attended(20, chunk_safe) == [(0, 4), (1, 3), (18, 2), (19, 1), (20, 0)]
    assert twin.attended(3, chunk_safe) == [(0, 4), (1, 2), (2, 1), (3, 0)]


@pytest.mark.parametrize("heads,kv_heads,dim", [(2, 2, 8), (6, 2, 8), (4, 1, 12)])
def test_equals_full_while_the_text_fits(heads, kv_heads, dim):
    q, k, v = random_inputs(31, heads, kv_heads, dim)
    for options, n in (
        (Options(4, 26), 31),
        (Options(10, 40), 31),
        (Options(4, 12), 17),
        (Options(4, 31, "chunk-safe"), 31),
        (Options(4, 12, "chunk-safe"), 12),
    ):
        result = streaming_llm(q, k, v, options)
        assert_equals_full(result, q, k, v, slice(0, n))
        assert n == 31 or keys_of(result, n) != [(j, n - j) for j in range(n + 1)]


def test_sizes_and_largest_distances():
    for i in range(40, 60):
        slots, safe = (twin.attended(i, Options(4, 16, form)) for form in ("slots", "chunk-safe"))
        assert len(slots) == 4 + 16 + 1 and max(d for _, d in slots) == 20
        assert len(safe) == 4 + 16 and max(d for _, d in safe) == 19


@pytest.mark.parametrize("form", ["slots", "chunk-safe"])
def test_outputs(form):
    q, k, v = random_inputs(41, heads=6, kv_heads=2)
    options = Options(4, 9, form)
    assert_outputs_follow_from_pairs(streaming_llm(q, k, v, options), q, k, v)
    assert_rows_know_nothing_later(lambda *x: streaming_llm(*x, options), q, k, v, (1, 9, 13, 14, 30))


# --- mutations

SLOTS = ("streaming-llm-slots-mha", "streaming-llm-slots-gqa", "streaming-llm-slots-more-sinks-than-recent")
CHUNK_SAFE = tuple(name.replace("slots", "chunk-safe") for name in SLOTS)


def mutate(monkeypatch, change):
    """change: (keys of the row, i, options) -> other keys."""
    original = twin.attended
    monkeypatch.setattr(twin, "attended", lambda i, options: change(original(i, options), i, options))


def test_dropped_sinks_are_noticed(monkeypatch):
    mutate(monkeypatch, lambda keys, i, o: [(j, d) for j, d in keys if i - j <= o.recent])
    assert unnoticed(STREAMING_LLM, *SLOTS, *CHUNK_SAFE) == []


@pytest.mark.parametrize("off", [-1, 1])
def test_a_window_off_by_one_is_noticed(off, monkeypatch):
    original = twin.attended
    monkeypatch.setattr(
        twin, "attended", lambda i, o: original(i, Options(o.start, max(o.recent + off, 1), o.form))
    )
    assert unnoticed(STREAMING_LLM, *SLOTS, *CHUNK_SAFE) == []


def test_sinks_at_their_true_distance_are_noticed(monkeypatch):
    mutate(monkeypatch, lambda keys, i, o: [(j, i - j) for j, _ in keys])
    assert unnoticed(STREAMING_LLM, *SLOTS, *CHUNK_SAFE) == []


def test_sinks_at_one_distance_are_noticed(monkeypatch):
    mutate(monkeypatch, lambda keys, i, o: [(j, d if d == i - j else o.recent) for j, d in keys])
    assert unnoticed(STREAMING_LLM, *SLOTS, *CHUNK_SAFE) == []


def test_a_query_one_slot_early_is_noticed(monkeypatch):
    mutate(monkeypatch, lambda keys, i, o: [(j, d if d == i - j else d - 1) for j, d in keys])
    assert unnoticed(STREAMING_LLM, *SLOTS, *CHUNK_SAFE) == []


def test_one_form_for_the_other_is_noticed(monkeypatch):
    original = twin.attended
    other = {"slots": "chunk-safe", "chunk-safe": "slots"}
    monkeypatch.setattr(twin, "attended", lambda i, o: original(i, Options(o.start, o.recent, other[o.form])))
    assert unnoticed(STREAMING_LLM, *SLOTS, *CHUNK_SAFE) == []


def test_the_mode_without_shifted_positions_is_noticed(monkeypatch):
    # The official option that leaves the shift out: token j stands at min(j, S + R) for ever.
    mutate(
        monkeypatch,
        lambda keys, i, o: [(j, min(i, o.start + o.recent) - min(j, o.start + o.recent)) for j, _ in keys],
    )
    assert unnoticed(STREAMING_LLM, *SLOTS) == []
