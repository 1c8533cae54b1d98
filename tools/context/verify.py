#!/usr/bin/env python3
"""Checks context files (.lhctx) without longheads: written from docs/context-file.md alone.

Usage: verify.py [--newest] [--json] FILE...

Reads every byte that counts. Prints what each file holds, or in what way it is damaged; the exit status is 1 if any
is. --newest looks at what an interrupted writer had committed instead of the finished text.

Needs Python's package xxhash, or else the library libxxhash (Debian: libxxhash0).
"""

import argparse
import array
import ctypes
import json
import struct
import sys

BLOCK = 4096
MAGIC_HEADER = b"LHCTX\r\n\x1a"
MAGIC_SUPERBLOCK = b"LHSUPER\n"
MAGIC_CHECKPOINT = b"LHCHECK\n"
TOKENS, PHASES, PAGES, STATE = 1, 2, 3, 4
REPLACES_EARLIER = 1
KV_TYPES = {0: "float32", 1: "bfloat16", 2: "q8"}


class Damaged(Exception):
    """What is wrong with a file, in words."""


def load_checksum():
    try:
        import xxhash

        return xxhash.xxh3_64_intdigest
    except ImportError:
        library = ctypes.CDLL("libxxhash.so.0")
        library.XXH3_64bits.restype = ctypes.c_uint64
        library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        return lambda data: library.XXH3_64bits(data, len(data))


checksum = load_checksum()


def need(condition, problem):
    if not condition:
        raise Damaged(problem)


def ends_with_its_checksum(data):
    return struct.unpack("<Q", data[-8:])[0] == checksum(data[:-8])


class ContextFile:
    """An open file whose header and superblocks are right."""

    def __init__(self, file):
        self.file = file
        self.size = file.seek(0, 2)
        first = self.read(0, BLOCK, "the header")
        need(first[:8] == MAGIC_HEADER, "is no context file")
        byte_order, version, header_bytes, metadata_bytes = struct.unpack_from("<IIQQ", first, 8)
        need(byte_order == 0x01020304, "has another byte order")
        need(version == 1, f"has version {version}; this reads version 1")
        need(BLOCK <= header_bytes <= 16 << 20 and header_bytes % BLOCK == 0, "has a header of an impossible size")
        header = self.read(0, header_bytes, "the header")
        need(ends_with_its_checksum(header), "has a damaged header")
        self.id = struct.unpack("<Q", header[-8:])[0]
        fields = struct.unpack_from("<6I2Q", header, 32)
        (self.n_layers, self.n_kv_heads, self.head_dim, self.kv_type, self.page_tokens, reserved) = fields[:6]
        self.page_bytes, self.page_stride = fields[6:]
        need(1 <= self.n_layers <= 1 << 16, "has an impossible number of layers")
        need(1 <= self.n_kv_heads <= 1 << 16, "has an impossible number of heads")
        need(1 <= self.page_tokens <= 1 << 20 and reserved == 0, "has impossible pages")
        need(1 <= self.page_bytes <= 1 << 30, "has impossible pages")
        need(self.page_stride == -(-self.page_bytes // BLOCK) * BLOCK, "has impossible pages")
        need(72 + metadata_bytes + 8 <= header_bytes, "has metadata beyond its header")
        self.metadata = json.loads(header[72 : 72 + metadata_bytes].decode("utf-8"))
        self.body = header_bytes + 2 * BLOCK
        self.superblocks = [self.read_superblock(header_bytes + slot * BLOCK, slot) for slot in (0, 1)]
        whole = [one for one in self.superblocks if one]
        need(whole, "has two damaged superblocks")
        self.superblock = max(whole, key=lambda one: one["sequence"])

    def read(self, offset, size, what):
        need(0 <= offset and offset + size <= self.size, f"is cut off in {what}")
        self.file.seek(offset)
        data = self.file.read(size)
        need(len(data) == size, f"is cut off in {what}")
        return data

    def read_superblock(self, offset, slot):
        data = self.read(offset, BLOCK, "a superblock")
        file_id, sequence, *references = struct.unpack_from("<8Q", data, 8)
        whole = data[:8] == MAGIC_SUPERBLOCK and ends_with_its_checksum(data)
        if not whole or file_id != self.id or sequence % 2 != slot or sequence > 1 << 62:
            return None
        return {"sequence": sequence, "newest": tuple(references[:3]), "finished": tuple(references[3:])}


class Text:
    """What a reference of the superblock leads to, with everything checked."""

    def __init__(self, context, reference):
        self.context = context
        need(reference[0] != 0, "holds no such text")
        heads = []
        limit = context.size
        while reference[0] != 0:
            head = self.read_head(reference, limit)
            if heads:
                need(head["sequence"] + 1 == heads[-1]["sequence"], "skips a checkpoint")
                need(head["after"] == heads[-1]["before"], "has checkpoints that do not follow one another")
            heads.append(head)
            limit = head["offset"]
            reference = head["previous"]
        need(heads[-1]["sequence"] == 1 and heads[-1]["before"] == (0, 0), "lacks its first checkpoint")
        heads.reverse()
        self.n_checkpoints = len(heads)
        self.model_tokens = heads[-1]["after"][1]
        self.tokens = array.array("i")
        self.phases = bytearray()
        self.pages = {}  # slot -> (offset, checksum)
        self.states = [[] for _ in range(context.n_layers)]
        for head in heads:
            self.add(head)
        self.check_states()
        self.check_pages()

    def read_head(self, reference, limit):
        context = self.context
        offset, head_bytes, expected = reference
        need(offset % BLOCK == 0 and offset >= context.body, "has a checkpoint where none can be")
        need(head_bytes >= 112 and (head_bytes - 112) % 32 == 0, "has a checkpoint of an impossible size")
        data = context.read(offset, head_bytes, "a checkpoint")
        need(ends_with_its_checksum(data), f"has a damaged checkpoint at {offset}")
        need(struct.unpack("<Q", data[-8:])[0] == expected, f"names another checkpoint than that at {offset}")
        need(data[:8] == MAGIC_CHECKPOINT, f"has no checkpoint at {offset}")
        file_id, sequence, own, text_before, text_after, model_before, model_after = struct.unpack_from("<7Q", data, 8)
        *previous, total, n_sections = struct.unpack_from("<5Q", data, 64)
        need(file_id == context.id and own == offset, f"has a stray checkpoint at {offset}")
        need(n_sections == (head_bytes - 112) // 32, f"has a damaged checkpoint at {offset}")
        need(text_before <= text_after and model_before <= model_after, f"counts its tokens wrongly at {offset}")
        sections = [struct.unpack_from("<4I2Q", data, 104 + 32 * i) for i in range(n_sections)]
        used = head_bytes + sum(section[4] for section in sections)
        need(total == -(-used // BLOCK) * BLOCK and offset + total <= limit, f"has a damaged checkpoint at {offset}")
        kinds = [section[0] for section in sections]
        need(all(kinds.count(kind) == 1 for kind in (TOKENS, PHASES, PAGES)), f"lacks sections at {offset}")
        return {
            "offset": offset,
            "head_bytes": head_bytes,
            "sequence": sequence,
            "before": (text_before, model_before),
            "after": (text_after, model_after),
            "previous": tuple(previous),
            "sections": sections,
        }

    def add(self, head):
        at = head["offset"] + head["head_bytes"]
        n_tokens = head["after"][0] - head["before"][0]
        for kind, layer, flags, reserved, size, expected in head["sections"]:
            data = self.context.read(at, size, "a section")
            whole = checksum(data) == expected
            need(whole or kind == STATE, f"has a damaged section at {at}")  # of states those that stay count
            need(reserved == 0 and (flags == 0 or (kind == STATE and flags == REPLACES_EARLIER)), "has unknown flags")
            need(layer < (self.context.n_layers if kind == STATE else 1), "has a section of an unknown layer")
            at += size
            if kind == TOKENS:
                need(size == 4 * n_tokens, "has another number of tokens than it says")
                self.tokens.extend(value for (value,) in struct.iter_unpack("<i", data))
            elif kind == PHASES:
                need(size == n_tokens, "has another number of phases than of tokens")
                self.phases += data
            elif kind == PAGES:
                need(size % 24 == 0, "has half an entry for a page")
                for slot, offset, page_checksum in struct.iter_unpack("<3Q", data):
                    end = offset + self.context.page_stride
                    need(offset % BLOCK == 0 and self.context.body <= offset, "has a page where none can be")
                    need(end <= head["offset"], "has a page where none can be")
                    self.pages[slot] = (offset, page_checksum)
            elif kind == STATE:
                if flags == REPLACES_EARLIER:
                    self.states[layer] = [one for one in self.states[layer] if not one[0]]
                self.states[layer].append((flags, data if whole else None))
            else:
                raise Damaged(f"has a section of the unknown kind {kind}")

    def check_states(self):
        for layer, parts in enumerate(self.states):
            need(all(part is not None for _, part in parts), f"has a damaged state of layer {layer}")

    def check_pages(self):
        context = self.context
        heads = context.n_layers * context.n_kv_heads
        n_slots = -(-self.model_tokens // context.page_tokens) * heads
        need(len(self.pages) == n_slots, "lacks pages")
        need(all(slot < n_slots for slot in self.pages), "names pages that it has not")
        for slot, (offset, expected) in sorted(self.pages.items(), key=lambda one: one[1]):
            data = context.read(offset, context.page_bytes, "a page")
            page, head = divmod(slot, heads)
            layer, kv_head = divmod(head, context.n_kv_heads)
            need(checksum(data) == expected, f"has a damaged page {page} of layer {layer}, head {kv_head}")

    def summary(self):
        context = self.context
        return {
            "metadata": context.metadata,
            "n_layers": context.n_layers,
            "n_kv_heads": context.n_kv_heads,
            "head_dim": context.head_dim,
            "kv_type": KV_TYPES.get(context.kv_type, context.kv_type),
            "page_tokens": context.page_tokens,
            "page_bytes": context.page_bytes,
            "tokens": len(self.tokens),
            "model_tokens": self.model_tokens,
            "checkpoints": self.n_checkpoints,
            "pages": len(self.pages),
            "state_bytes": sum(len(part) for parts in self.states for _, part in parts),
            "superblocks": sum(one is not None for one in context.superblocks),
            "unfinished": context.superblock["newest"] != context.superblock["finished"],
        }


def read(path, newest=False):
    """The text of a file, all of it checked. Raises Damaged."""
    try:
        with open(path, "rb") as file:
            context = ContextFile(file)
            return Text(context, context.superblock["newest" if newest else "finished"])
    except ValueError as error:  # of JSON and UTF-8
        raise Damaged(f"has damaged metadata ({error})") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--newest", action="store_true", help="what an interrupted writer had committed")
    parser.add_argument("--json", action="store_true", help="one JSON object for each file")
    parser.add_argument("files", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    status = 0
    for path in arguments.files:
        try:
            summary = read(path, arguments.newest).summary()
        except (Damaged, OSError) as error:
            status = 1
            print(f"{path} {error}" if isinstance(error, Damaged) else error, file=sys.stderr)
            continue
        if arguments.json:
            print(json.dumps({"file": path, **summary}))
        else:
            print(f"{path}: whole")
            for key, value in summary.items():
                print(f"  {key}: {value}")
    sys.exit(status)


if __name__ == "__main__":
    main()
