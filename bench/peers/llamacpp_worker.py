"""Times llama.cpp on a GGUF file: llamacpp_worker.py MODEL LENGTH N_DECODE THREADS SEED [BLOCKS]

Prints "begin" before the prompt that is timed, and at last one line of JSON: tokens a second of a prompt of LENGTH random ids,
to the choice of its first token, and of each token after it, the median of N_DECODE. A prompt of at most 2048 other ids goes
before. Flash attention, keys and values in float16, micro-batches of 512 tokens: llama.cpp's own choice on a CPU.

With BLOCKS no more than so many of the prompt's whole blocks of 512 tokens are timed, evenly apart, the first and the last
among them, and what is behind them; what others would take is taken to lie on a line between their neighbours. The JSON has the
seconds of each that was timed, by the number of tokens before it. In the place of those others the keys and values of a block
that was read alone are put at their positions. So what is timed meets as many keys as it would in a prompt that is read whole,
and only what the keys hold differs.
"""

import ctypes
import json
import statistics
import sys
import time

import blocks
import llama_cpp
import numpy

BATCH, BLOCK = 2048, blocks.TOKENS  # tokens that are read at a time; and of those, through the model at a time
SILENCE = llama_cpp.llama_log_callback(lambda level, text, data: None)


class Session:
    """A context of `length` tokens whose sequence 0 is what is read."""

    def __init__(self, path, length, threads):
        llama_cpp.llama_backend_init()
        llama_cpp.llama_log_set(SILENCE, None)
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp cannot read {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = length, BATCH, BLOCK
        params.n_threads = params.n_threads_batch = threads
        params.n_seq_max, params.kv_unified = 2, True
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context or llama_cpp.llama_n_ctx(self.context) < length:
            sys.exit(f"llama.cpp made no context of {length} tokens")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def clear(self):
        llama_cpp.llama_memory_clear(self.memory, True)

    def read(self, ids, position, sequence=0):
        """Reads at most BATCH ids; the likeliest token behind them, and the seconds it took."""
        start = time.perf_counter()
        self.batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i] = token, position + i
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
            self.batch.logits[i] = i == len(ids) - 1
        if status := llama_cpp.llama_decode(self.context, self.batch):
            sys.exit(f"llama.cpp failed to read {len(ids)} tokens at {position}: {status}")
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        token = int(numpy.ctypeslib.as_array(logits, shape=(self.vocabulary,)).argmax())
        return token, time.perf_counter() - start

    def keep(self, ids):
        """What a block of these ids leaves, for `put`."""
        self.read(ids, 0, sequence=1)
        size = llama_cpp.llama_state_seq_get_size(self.context, 1)
        self.kept = (ctypes.c_uint8 * size)()
        if llama_cpp.llama_state_seq_get_data(self.context, self.kept, size, 1) != size:
            sys.exit("llama.cpp does not give away what it keeps of a block")
        llama_cpp.llama_memory_seq_rm(self.memory, 1, -1, -1)

    def put(self, position):
        """That at another place of sequence 0."""
        if llama_cpp.llama_state_seq_set_data(self.context, self.kept, len(self.kept), 1) != len(self.kept):
            sys.exit("llama.cpp does not take back what it kept of a block")
        llama_cpp.llama_memory_seq_add(self.memory, 1, 0, -1, position)
        llama_cpp.llama_memory_seq_cp(self.memory, 1, 0, -1, -1)
        llama_cpp.llama_memory_seq_rm(self.memory, 1, -1, -1)

    def turn(self, token):
        """Keys that were put somewhere are rotated for that place before what is read next: now."""
        self.read([token], 0, sequence=1)
        llama_cpp.llama_memory_seq_rm(self.memory, 1, -1, -1)


def time_prompt(session, ids):
    """The token behind the prompt, and the seconds for all of it."""
    total = 0
    for start in range(0, len(ids), BATCH):
        token, seconds = session.read(ids[start:start + BATCH], start)
        total += seconds
    return token, total


def time_in_part(session, ids, wanted):
    """The same by `wanted` of its whole blocks; and the seconds of each that was read, by the tokens before it."""
    whole, rest = divmod(len(ids), BLOCK)
    timed = blocks.evenly(wanted, whole) | ({whole} if rest else set())
    session.keep(ids[:BLOCK])
    seconds = {}
    for block in range(whole + (1 if rest else 0)):
        start = block * BLOCK
        if block not in timed:
            session.put(start)
            continue
        if block > 0:
            session.turn(ids[0])
        token, seconds[block] = session.read(ids[start:start + BLOCK], start)
    total = seconds[whole] if rest else 0
    total += blocks.sum_of_all({block: s for block, s in seconds.items() if block < whole}, whole)
    return token, total, {block * BLOCK: s for block, s in seconds.items()}


def main():
    path = sys.argv[1]
    length, n_decode, threads, seed = map(int, sys.argv[2:6])
    wanted = int(sys.argv[6]) if len(sys.argv) > 6 else 0
    session = Session(path, length + n_decode + 1, threads)
    random = numpy.random.default_rng(seed)
    said = {}
    for is_timed, n in enumerate((min(length, BATCH), length)):
        session.clear()
        if is_timed:
            print("\nbegin", flush=True)
        ids = random.integers(300, 32000, size=n).tolist()
        if is_timed and 0 < wanted < length // BLOCK:
            token, prefill, said["blocks"] = time_in_part(session, ids, wanted)
        else:
            token, prefill = time_prompt(session, ids)
        decode = []
        for i in range(n_decode):
            token, seconds = session.read([token], n + i)
            decode.append(seconds)
    print(json.dumps({"prefill": length / prefill, "decode": 1 / statistics.median(decode)} | said))


if __name__ == "__main__":
    main()
