"""Times llama.cpp on a GGUF file: llamacpp_worker.py MODEL LENGTH N_DECODE THREADS SEED

Prints "begin" before the prompt that is timed, and at last one line of JSON: tokens a second of a prompt of LENGTH random ids,
to the choice of its first token, and of each token after it, the median of N_DECODE. A prompt of at most 2048 other ids goes
before. Flash attention, keys and values in float16, micro-batches of 512 tokens: llama.cpp's own choice on a CPU.
"""

import json
import statistics
import sys
import time

import llama_cpp
import numpy


def main():
    path = sys.argv[1]
    length, n_decode, threads, seed = map(int, sys.argv[2:])
    model = llama_cpp.Llama(path, n_ctx=length + n_decode + 1, n_batch=2048, n_ubatch=512, n_threads=threads,
                            n_threads_batch=threads, flash_attn=True, verbose=False)
    if model.n_ctx() < length + n_decode + 1:
        sys.exit(f"llama.cpp made a context of {model.n_ctx()} tokens, shorter than the prompt")
    vocabulary = model.n_vocab()

    def evaluate(ids):
        start = time.perf_counter()
        model.eval(ids)
        logits = llama_cpp.llama_get_logits_ith(model.ctx, -1)
        token = int(numpy.ctypeslib.as_array(logits, shape=(vocabulary,)).argmax())
        return token, time.perf_counter() - start

    random = numpy.random.default_rng(seed)
    for timed, n in enumerate((min(length, 2048), length)):
        if timed:
            print("\nbegin", flush=True)
        model.reset()
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(model.ctx), True)
        token, prefill = evaluate(random.integers(300, 32000, size=n).tolist())
        decode = []
        for _ in range(n_decode):
            token, seconds = evaluate([token])
            decode.append(seconds)
    print(json.dumps({"prefill": length / prefill, "decode": 1 / statistics.median(decode)}))


if __name__ == "__main__":
    main()
