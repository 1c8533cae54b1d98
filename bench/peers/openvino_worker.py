"""Times OpenVINO GenAI on a GGUF file: openvino_worker.py MODEL LENGTH N_DECODE THREADS SEED

Prints "begin" before the prompt that is timed, and at last one line of JSON: tokens a second of a prompt of LENGTH random ids,
to its first token, and of each token after it, the median of N_DECODE. A prompt of at most 2048 other ids goes before, so
that compiling and first allocations are not timed.
"""

import json
import statistics
import sys

import numpy
import openvino
import openvino_genai


def main():
    model = sys.argv[1]
    length, n_decode, threads, seed = map(int, sys.argv[2:])
    pipeline = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)
    config = openvino_genai.GenerationConfig(max_new_tokens=n_decode + 1, ignore_eos=True, do_sample=False)
    random = numpy.random.default_rng(seed)
    for timed, n in enumerate((min(length, 2048), length)):
        if timed:
            print("\nbegin", flush=True)
        ids = random.integers(300, 32000, size=(1, n), dtype=numpy.int64)
        prompt = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
        metrics = pipeline.generate(prompt, config).perf_metrics
    if metrics.get_num_input_tokens() != length:
        sys.exit(f"OpenVINO GenAI read {metrics.get_num_input_tokens()} tokens instead of {length}")
    milliseconds = [us / 1000 for us in metrics.raw_metrics.m_durations[1:]]
    print(json.dumps({"prefill": 1000 * length / metrics.get_ttft().mean,
                      "decode": 1000 / statistics.median(milliseconds)}))


if __name__ == "__main__":
    main()
