"""Times llama.cpp on a GGUF file: llamacpp_worker.py MODEL LENGTH N_DECODE THREADS SEED [BLOCKS]

Prints "begin" before the prompt that is timed, and at last one line of JSON: tokens a second of a prompt of LENGTH random ids,
to the choice of its first token, and of each token after it, the median of N_DECODE. A prompt of at most 2048 other ids goes
before. Flash attention, keys and values in float16, micro-batches of 512 tokens: llama.cpp's own choice on a CPU.

With BLOCKS no more than so many of the prompt's whole blocks of 2048 tokens are timed, evenly apart, the first and the last
among them, and what is behind them; what others would take is taken to lie on a line between their neighbours. The JSON has the
seconds of each that was timed, by the number of tokens before it. Those others are read too, but each as a text of its own, which
sees nothing before it, and handed over to the one that is timed. So its blocks and tokens meet as many keys as they would in
a prompt that is read whole, at the same positions, and only what the keys hold differs.
"""

import json
import statistics
import sys
import time

import blocks
import llama_cpp
import numpy

BLOCK = 2048
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
        params.n_ctx, params.n_batch, params.n_ubatch = length, BLOCK, 512
        params.n_threads = params.n_threads_batch = threads
        params.n_seq_max, params.kv_unified = 2, True
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context or llama_cpp.llama_n_ctx(self.context) < length:
            sys.exit(f"llama.cpp made no context of {length} tokens")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(BLOCK, 0, 1)

    def clear(self):
        llama_cpp.llama_memory_clear(self.memory, True)

    def read(self, ids, position, sequence=0):
        """Reads at most BLOCK ids; the likeliest token behind them, and the seconds it took."""
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

    def read_apart(self, ids, position):
        """Reads ids that see each other alone, for sequence 0 to see them."""
        self.read(ids, position, sequence=1)
        llama_cpp.llama_memory_seq_cp(self.memory, 1, 0, -1, -1)
        llama_cpp.llama_memory_seq_rm(self.memory, 1, -1, -1)


def time_prompt(session, ids, timed):
    """The token behind the prompt, and the seconds for each block, by the tokens before it, of those that begin with one in `timed`."""
    seconds = {}
    for start in range(0, len(ids), BLOCK):
        block = ids[start:start + BLOCK].tolist()
        if start in timed:
            token, seconds[start] = session.read(block, start)
        else:
            session.read_apart(block, start)
    return token, seconds


def main():
    path = sys.argv[1]
    length, n_decode, threads, seed = map(int, sys.argv[2:6])
    whole, rest = divmod(length, BLOCK)
    wanted = int(sys.argv[6]) if len(sys.argv) > 6 else whole
    timed = {block * BLOCK for block in blocks.evenly(wanted, whole)} | ({whole * BLOCK} if rest else set())
    session = Session(path, length + n_decode + 1, threads)
    random = numpy.random.default_rng(seed)
    for is_timed, n in enumerate((min(length, BLOCK), length)):
        session.clear()
        if is_timed:
            print("\nbegin", flush=True)
        token, seconds = time_prompt(session, random.integers(300, 32000, size=n), timed if is_timed else {0})
        decode = []
        for i in range(n_decode):
            token, taken = session.read([token], n + i)
            decode.append(taken)
    prefill = seconds.get(whole * BLOCK, 0)
    if whole:
        prefill += blocks.sum_of_all({start // BLOCK: s for start, s in seconds.items() if start < whole * BLOCK}, whole)
    said = {"prefill": length / prefill, "decode": 1 / statistics.median(decode)}
    print(json.dumps(said | ({"blocks": seconds} if wanted < whole else {})))


if __name__ == "__main__":
    main()
