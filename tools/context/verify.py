#!/usr/bin/env python3
"""Checks context files (.lhctx) without longheads: written from docs/context-file.md alone.

Usage: verify.py [--newest] [--json] FILE...

Reads every byte that counts, and holds the states of the attention method against the sizes that their layout must
have; of a method or layout that is not known here it says so. Prints what each file holds, or in what way it is
damaged; the exit status is 1 if any is. --newest looks at what an interrupted writer had committed instead of the
finished text.

Needs Python's package xxhash, or else the library libxxhash (Debian: libxxhash0).
"""

import argparse
import array
import ctypes
import json
import math
import re
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
        newest, finished = self.superblock["newest"], self.superblock["finished"]
        need(finished[0] <= newest[0], "has a newest checkpoint that is older than the finished one")

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


class StatePart:
    """The bytes of one part of a layer's state, taken one after the other."""

    def __init__(self, data):
        self.data = data
        self.at = 0
        (size,) = self.integers(1)
        need(size >= 0, "begins with no name of a layout")
        self.name = self.take(size).decode("ascii", "replace")

    def take(self, size):
        need(size <= len(self.data) - self.at, "ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def integers(self, n, kind="q"):
        size = struct.calcsize(f"<{kind}")
        return struct.unpack(f"<{n}{kind}", self.take(n * size))

    def floats(self, *shape):
        self.take(4 * math.prod(shape))  # they may be any

    def end(self):
        need(self.at == len(self.data), f"has {len(self.data) - self.at} bytes too many")


class Layout:
    """What the parts of a layer's state hold: here, where the method keeps nothing."""

    pattern = "none"
    vector = (0,)  # the shape of one; heads first

    def __init__(self, context, *sizes):
        pass

    def vectors(self, n):
        """How many there are when the model has read n tokens."""
        return 0

    def check_rest(self, part, n):
        """What stands behind n in a part with the flag."""

    def check(self, parts, n_tokens):
        so_far = n_latest = 0
        for flags, part, n_committed in parts:
            begin = part.integers(1)[0] if flags == 0 else 0
            (n,) = part.integers(1)
            need(n == n_committed, f"is of {n} tokens where {n_committed} were committed")
            if flags == REPLACES_EARLIER:
                need(n == n_tokens, f"is of {n} tokens, not of {n_tokens}")
                self.check_rest(part, n)
                n_latest += 1
            else:
                need(0 <= begin <= so_far, f"goes on with token {begin} after {so_far}")
                part.floats(self.vectors(n) - self.vectors(begin), *self.vector)
                so_far = n
            part.end()
        need(so_far == n_tokens, f"is of {so_far} tokens, not of {n_tokens}")
        need(n_latest == 1, "lacks its newest part")


class LongHeadsLayout(Layout):
    pattern = "longheads 1: chunks of N, N x N, queries N"

    def __init__(self, context, chunk, n_representations, dim, query_floats):
        super().__init__(context)
        need(query_floats % (context.n_kv_heads * dim) == 0, "has a number of query heads that cannot be")
        need(n_representations in (context.n_kv_heads, query_floats // dim), "is of another number of heads")
        need(dim == context.head_dim, "is of heads of another size")
        self.chunk = chunk
        self.vector = (n_representations, dim)
        self.query_floats = query_floats

    def vectors(self, n):
        return n // self.chunk

    def check_rest(self, part, n):
        (n_open,) = part.integers(1)
        need(n_open == n % self.chunk, f"has {n_open} tokens in its open chunk, not {n % self.chunk}")
        part.floats(n_open, self.query_floats)


class BlockVectorsLayout(Layout):
    pattern = "block-vectors 1: N tokens, N x N"

    def __init__(self, context, block, n_heads, n_floats):
        super().__init__(context)
        doubled = 2 if method_of(context.metadata) == "quest" else 1
        need(n_heads == context.n_kv_heads, "is of another number of heads")
        need(n_floats == doubled * context.head_dim, "has vectors of another size")
        self.block = block
        self.vector = (n_heads, n_floats)

    def vectors(self, n):
        return n // self.block


class EsaLayout(Layout):
    pattern = "esa 1: Z [0-9a-f]{16}"

    def __init__(self, context, n_floats):
        super().__init__(context)
        need(n_floats <= context.n_kv_heads * context.head_dim, "has more dimensions than a token's keys")
        self.vector = (n_floats,)

    def vectors(self, n):
        return n


class InfLlmLayout(Layout):
    pattern = "infllm 1: Z first, N local, blocks of N, steps of N, N x N, caches N x N"
    mass_tokens = 256  # in a page of masses

    def __init__(self, context, first, local, block, step, n_heads, dim, n_caches, cache_blocks):
        super().__init__(context)
        need(n_heads % context.n_kv_heads == 0, "has a number of query heads that cannot be")
        need(n_caches in (1, n_heads), "has a number of caches that cannot be")
        need(dim == context.head_dim, "is of heads of another size")
        self.first, self.local, self.block, self.step = first, local, block, step
        self.vector = (n_heads, dim)
        self.most_pages = (local + block + step + 253) // self.mass_tokens + 1
        self.n_caches, self.cache_blocks = n_caches, cache_blocks

    def vectors(self, n):
        return max(0, n - self.local - self.first) // self.block

    def mass_pages(self, n):
        return -(-n // self.mass_tokens)

    def check_rest(self, part, n):
        step_begin, kept_at, decoding, newest_end = part.integers(4)
        need(max(0, n - self.step) <= step_begin <= n, f"has a newest step that begins with token {step_begin} of {n}")
        need(0 <= kept_at <= step_begin, f"was decoding from token {kept_at} on")
        need(decoding in (0, 1) and newest_end in (0, n), "has a newest step that cannot be")
        newest_begin = max(self.first, step_begin - self.local + 1)
        need(newest_end == 0 or newest_begin < n, "has a newest step that cannot be")
        n_pages = min(self.most_pages, self.mass_pages(n)) + min(self.most_pages, self.mass_pages(kept_at))
        if newest_end > 0:
            n_pages += self.mass_pages(n) - newest_begin // self.mass_tokens
        part.floats(n_pages, self.vector[0], self.mass_tokens)
        for _ in range(self.n_caches * (1 + (step_begin < n) + (kept_at > 0))):
            self.check_cache(part, self.vectors(n))

    def check_cache(self, part, n_blocks):
        (n_held,) = part.integers(1)
        need(0 <= n_held <= min(n_blocks, self.cache_blocks), f"has {n_held} of {n_blocks} blocks in a cache")
        held = part.integers(n_held, "i")
        need(all(0 <= block < n_blocks for block in held), "has blocks in a cache that the text has not")
        need(all(count >= 0 for count in part.integers(2)), "has a cache that counts wrongly")


LAYOUTS = {
    layout.pattern.split(":", maxsplit=1)[0]: layout
    for layout in (Layout, LongHeadsLayout, BlockVectorsLayout, EsaLayout, InfLlmLayout)
}
LAYOUT_OF_METHOD = {
    "auto": "longheads 1",
    "esa": "esa 1",
    "full": "none",
    "infllm": "infllm 1",
    "landmark": "block-vectors 1",
    "leaky-rerope": "none",
    "lm-infinite": "none",
    "longheads": "longheads 1",
    "moba": "block-vectors 1",
    "quest": "block-vectors 1",  # but for its first layers
    "rerope": "none",
    "self-extend": "none",
    "streaming-llm": "none",
}


def spec_of(metadata):
    """The method with its options, ",NAME=VALUE" each; None where the metadata do not say it."""
    text = metadata.get("attention_in_full") if isinstance(metadata, dict) else None
    found = re.search(r"\+([a-z].*)", text, re.DOTALL) if isinstance(text, str) else None
    return found and found[1]


def method_of(metadata):
    spec = spec_of(metadata)
    return spec and spec.split(",", maxsplit=1)[0]


def has_no_state(spec, layer):
    """Whether quest sees everything in this layer."""
    found = re.search(r"^quest,.*\bdense_layers=([0-9]+)([kKmM]?)", spec, re.DOTALL)
    return found is not None and layer < int(found[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20}[found[2].lower()]


def layout_of(name, context):
    pattern = LAYOUTS[name.split(":", maxsplit=1)[0]].pattern
    numbers = pattern.replace("N", "([1-9][0-9]{0,18})").replace("Z", "(0|[1-9][0-9]{0,18})")
    found = re.fullmatch(numbers, name)
    need(found, f"has a layout of no such kind, {name!r}")
    return LAYOUTS[name.split(":", maxsplit=1)[0]](context, *map(int, found.groups()))


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
        self.state_parts = [[] for _ in range(context.n_layers)]  # (flags, bytes, the model's tokens after the commit)
        for head in heads:
            self.add(head)
        self.check_states()
        self.states_hold = self.look_into_states()
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
                    self.state_parts[layer] = [one for one in self.state_parts[layer] if not one[0]]
                self.state_parts[layer].append((flags, data if whole else None, head["after"][1]))
            else:
                raise Damaged(f"has a section of the unknown kind {kind}")

    @property
    def states(self):
        """Of each layer: (flags, bytes) of the parts that count."""
        return [[part[:2] for part in parts] for parts in self.state_parts]

    def check_states(self):
        for layer, parts in enumerate(self.states):
            need(all(part is not None for _, part in parts), f"has a damaged state of layer {layer}")

    def look_into_states(self):
        """What they hold, in words, or why nobody looked."""
        spec = spec_of(self.context.metadata)
        if spec is None:
            return "not looked into: the metadata have no attention_in_full"
        method = method_of(self.context.metadata)
        if method not in LAYOUT_OF_METHOD:
            return f"not looked into: the method {method!r} is not known here"
        n_layers_of = {}
        for layer, parts in enumerate(self.state_parts):
            try:
                read = [(flags, StatePart(data), n_tokens) for flags, data, n_tokens in parts]
                names = {part.name for _, part, _ in read}
                need(len(names) == 1, f"has parts of {len(names)} layouts")
                name = names.pop()
                kind = name.split(":", maxsplit=1)[0]
                if kind not in LAYOUTS:
                    return f"not looked into: the layout {name!r} is not known here"
                expected = "none" if has_no_state(spec, layer) else LAYOUT_OF_METHOD[method]
                need(kind == expected, f"is laid out as {name!r}, which {method} does not do there")
                layout = layout_of(name, self.context)
                layout.check(read, self.model_tokens)
            except Damaged as problem:
                raise Damaged(f"has a state of layer {layer} that does not fit: it {problem}") from problem
            shape = " x ".join(str(n) for n in (layout.vectors(self.model_tokens), *layout.vector))
            held = "none" if kind == "none" else f"{name}; {shape} numbers"
            n_layers_of[held] = n_layers_of.get(held, 0) + 1
        return "; ".join(f"{held} in {n} of {self.context.n_layers} layers" for held, n in n_layers_of.items())

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
            "states": self.states_hold,
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
