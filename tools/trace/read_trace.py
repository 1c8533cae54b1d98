#!/usr/bin/env python3
"""Reads a trace file (docs/trace.md) and prints it as JSON lines: independent of the program that writes them.

Usage: read_trace.py FILE [--summary | --seen [TEXT] | --keys-read GROUP]

The first line is the header; then one line for each record, in the file's order. With --summary one line alone:
counts of records and tokens, and how many chunks were taken. With --seen, for each token of the answer, which stood
next, and how many of all heads of all layers saw all of the needle (what `longheads eval` hid, or TEXT's first place)
when it was chosen, how many some of it, and the first as a list for the layers. With --keys-read one line: how many
keys the generated tokens read in all layers, those once that several of GROUP query heads saw which share a key/value
head (`longheads run --json` counts the same as it reads them). Exits with 1, and a sentence, where the file is no whole
trace.
"""

import json
import math
import struct
import sys
import zlib

MAGIC = b"\x89LHT\r\n\x1a\n"
VERSION = 1
AS_BEFORE, SCORES = 1, 2


class BadTrace(Exception):
    pass


class Payload:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if self.at + n > len(self.data):
            raise BadTrace("a record ends in the middle of a value")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 62:
                raise BadTrace("a number is too long")

    def score(self):
        value = struct.unpack("<f", self.take(4))[0]
        return None if math.isnan(value) else value

    def end(self):
        if self.at != len(self.data):
            raise BadTrace("something follows a record's contents")


def records(data):
    """(kind, payload) of every record but the last, which is checked."""
    if not data.startswith(MAGIC):
        raise BadTrace("no trace file")
    at = len(MAGIC)
    if len(data) < at + 4:
        raise BadTrace("cut off")
    version = struct.unpack_from("<I", data, at)[0]
    if version != VERSION:
        raise BadTrace(f"version {version}, not {VERSION}")
    at += 4
    count = 0
    while True:
        if len(data) < at + 5:
            raise BadTrace("cut off")
        kind, size = data[at : at + 1], struct.unpack_from("<I", data, at + 1)[0]
        end = at + 5 + size
        if len(data) < end + 4:
            raise BadTrace("cut off")
        if zlib.crc32(data[at:end]) != struct.unpack_from("<I", data, end)[0]:
            raise BadTrace("a checksum does not fit")
        payload = data[at + 5 : end]
        at = end + 4
        if kind == b"E":
            if payload != struct.pack("<I", count) or at != len(data):
                raise BadTrace("its end says something else")
            return
        yield kind.decode("latin1"), payload
        count += 1


def tokens_of(payload):
    p = Payload(payload)
    ids, sizes = [], []
    for _ in range(p.number()):
        ids.append(p.number())
        sizes.append(p.number())
    texts = [p.take(size) for size in sizes]
    p.end()
    return ids, texts


def rows_of(p, n_rows, read_row):
    rows = []
    for _ in range(n_rows):
        flags = p.take(1)[0]
        if flags == AS_BEFORE:
            if not rows:
                raise BadTrace("the first row repeats nothing")
            rows.append(rows[-1])
        elif flags in (0, SCORES):
            rows.append(read_row(p, flags == SCORES))
        else:
            raise BadTrace("a row has unknown flags")
    p.end()
    return rows


def selection_row(p, scores):
    seen, at = [], 0
    for _ in range(p.number()):
        begin = at + p.number()
        at = begin + p.number()
        seen.append([begin, at])
    taken, block = [], 0
    for _ in range(p.number()):
        block += p.number()
        taken.append([block, p.score() if scores else None])
        block += 1
    return {"seen": seen, "taken": taken}


def counts_row(p, scores):
    seen, column = [], 0
    for _ in range(p.number()):
        column += p.number()
        seen.append([column, p.number()])
        column += 1
    taken, column = [], 0
    for _ in range(p.number()):
        column += p.number()
        times = p.number()
        taken.append([column, times, p.score() if scores else None])
        column += 1
    return {"seen": seen, "taken": taken}


def read_trace(data):
    """The records of a trace as dictionaries; the first is the header."""
    n_rows = None
    for kind, payload in records(data):
        if (kind == "H") != (n_rows is None):
            raise BadTrace("its header is not where it belongs")
        if kind == "H":
            header = json.loads(payload.decode("utf-8"))
            n_rows = header["n_layers"] * header["n_heads"]
            yield {"kind": "header", **header}
        elif kind == "T":
            ids, texts = tokens_of(payload)
            yield {"kind": "tokens", "ids": ids, "texts": [text.decode("utf-8", "replace") for text in texts],
                   "raw": texts, "bytes": sum(map(len, texts))}
        elif kind == "S":
            p = Payload(payload)
            position, phase = p.number(), p.take(1)[0]
            if phase > 1:
                raise BadTrace("a token is of no known phase")
            yield {"kind": "selection", "position": position, "phase": ["prefill", "decode"][phase],
                   "rows": rows_of(p, n_rows, selection_row)}
        elif kind == "P":
            p = Payload(payload)
            begin = p.number()
            yield {"kind": "counts", "begin": begin, "end": begin + p.number(), "rows": rows_of(p, n_rows, counts_row)}
        else:
            raise BadTrace(f"a record of unknown kind {kind!r}")


def summary(parts):
    result = {"tokens": 0, "selections": 0, "counts": 0, "taken": 0, "seen_keys": 0}
    for part in parts:
        if part["kind"] == "tokens":
            result["tokens"] += len(part["ids"])
        elif part["kind"] == "selection":
            result["selections"] += 1
            result["taken"] += sum(len(row["taken"]) for row in part["rows"])
            result["seen_keys"] += sum(end - begin for row in part["rows"] for begin, end in row["seen"])
        elif part["kind"] == "counts":
            result["counts"] += 1
    return result


def key_range(texts, begin, end):
    """The tokens [first, last) that bytes [begin, end) of the text lie in."""
    at, first, last = 0, None, None
    for i, text in enumerate(texts):
        at += len(text)
        if first is None and at > begin:
            first = i
        if last is None and at >= end:
            last = i + 1
    return first, last


def seen(parts, needle=None):
    """Lines of --seen; `needle` as bytes, or what the header names."""
    parts = list(parts)
    header, texts = parts[0], []
    for part in parts:
        if part["kind"] == "tokens":
            texts += part["raw"]
    if needle is not None:
        begin = b"".join(texts).find(needle)
        place = None if begin < 0 else {"begin": begin, "end": begin + len(needle)}
    else:
        place = header.get("needle")
    if place is None:
        raise BadTrace("the needle stands nowhere in it")
    first, last = key_range(texts, place["begin"], place["end"])
    for part in parts:
        if part["kind"] != "selection":
            continue
        keys = [sum(max(0, min(end, last) - max(begin, first)) for begin, end in row["seen"]) for row in part["rows"]]
        layers = [sum(n == last - first for n in keys[i : i + header["n_heads"]])
                  for i in range(0, len(keys), header["n_heads"])]
        after = part["position"] + 1
        yield {"position": part["position"], "next": texts[after].decode("utf-8", "replace") if after < len(texts) else None,
               "heads": len(keys), "saw_all": sum(layers), "saw_some": sum(n > 0 for n in keys), "layers": layers}


def keys_read(parts, group):
    """The line of --keys-read."""
    n_tokens, n_keys = 0, 0
    for part in parts:
        if part["kind"] != "selection" or part["phase"] != "decode":
            continue
        n_tokens += 1
        for at in range(0, len(part["rows"]), group):  # a layer has whole groups
            end = 0
            for begin, stop in sorted(run for row in part["rows"][at : at + group] for run in row["seen"]):
                n_keys += max(0, stop - max(begin, end))
                end = max(end, stop)
    return {"tokens": n_tokens, "keys_read": n_keys}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    try:
        parts = read_trace(data)
        if sys.argv[2:3] == ["--summary"]:
            parts = [summary(parts)]
        elif sys.argv[2:3] == ["--keys-read"] and len(sys.argv) == 4:
            parts = [keys_read(parts, int(sys.argv[3]))]
        elif sys.argv[2:3] == ["--seen"]:
            parts = seen(parts, sys.argv[3].encode() if len(sys.argv) > 3 else None)
        for part in parts:
            print(json.dumps({key: value for key, value in part.items() if key != "raw"}))
    except BadTrace as error:
        sys.exit(f"{sys.argv[1]}: {error}")


if __name__ == "__main__":
    main()
