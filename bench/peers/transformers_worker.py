"""Times Hugging Face transformers on a GGUF file: transformers_worker.py MODEL LENGTH N_DECODE THREADS SEED

Prints "begin" before the prompt that is timed, and at last one line of JSON: tokens a second of a prompt of LENGTH random ids,
to the choice of its first token, and of each token after it, the median of N_DECODE. A prompt of at most 2048 other ids goes
before. The file's weights are unpacked to bfloat16 where the processor multiplies it and to float32 elsewhere; attention
is PyTorch's own fused one.
"""

import json
import os
import pathlib
import statistics
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers


def main():
    path = pathlib.Path(sys.argv[1])
    length, n_decode, threads, seed = map(int, sys.argv[2:])
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, attn_implementation="sdpa",
        dtype=torch.bfloat16 if "avx512_bf16" in flags else torch.float32).eval()

    def evaluate(ids, cache):
        start = time.perf_counter()
        out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        token = out.logits[:, -1].argmax(-1, keepdim=True)
        return token, out.past_key_values, time.perf_counter() - start

    with torch.inference_mode():
        for timed, n in enumerate((min(length, 2048), length)):
            if timed:
                print("\nbegin", flush=True)
            token, cache, prefill = evaluate(torch.randint(300, 32000, (1, n)), None)
            decode = []
            for _ in range(n_decode):
                token, cache, seconds = evaluate(token, cache)
                decode.append(seconds)
    print(json.dumps({"prefill": length / prefill, "decode": 1 / statistics.median(decode)}))


if __name__ == "__main__":
    main()
