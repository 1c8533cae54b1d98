#!/bin/bash
# Fuzzes every parser for some seconds each, from its seeds, and says which branches the seeds alone reach.
# Usage: tools/fuzz/run.sh [SECONDS]; `make fuzz` installs what it needs first. Finds end up in
# build-fuzz/found/, and the status is not 0.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
build=build-fuzz

# What each target is there to cover.
declare -A covers=([context]='src/formats/context_*.cc' [gguf]='src/formats/gguf.cc' [tokenizer]='src/tokenizer/*.cc'
  [results]='src/eval/*_journal.cc src/eval/journal.cc src/eval/task_record.cc src/report/results.cc'
  [trace]='src/trace/trace.cc src/trace/trace_reader.cc'
  [model]='src/model/config.cc src/model/gguf_*.cc src/model/weights.cc src/rope/declaration.cc'
  [state]='src/attention/state_archive.cc src/attention/block_vectors.cc src/attention/esa.cc src/attention/infllm.cc
    src/attention/longheads.cc')

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target {context,gguf,model,results,state,tokenizer,trace}_{fuzzer,seeds}
mkdir -p "$build/found"
for target in context gguf model results state tokenizer trace; do
  fuzzer=$build/tests/fuzz/${target}_fuzzer
  seeds=$build/fuzz-seeds/$target
  corpus=$build/fuzz-corpus/$target
  mkdir -p "$corpus"
  "$build/tests/fuzz/${target}_seeds" "$seeds"

  profile=$build/$target.profraw
  LLVM_PROFILE_FILE=$profile "$fuzzer" -runs=0 "$seeds" 2>/dev/null
  llvm-profdata-14 merge -o "$build/$target.profdata" "$profile"
  echo "== $target: what its seeds reach"
  # Unit tests lie beside the code and are no part of the target.
  files=$(ls ${covers[$target]} | grep -v '_test\.cc$')
  llvm-cov-14 report "$fuzzer" -instr-profile="$build/$target.profdata" $files |
    awk '/^Filename/ || /\.cc|^TOTAL/ {printf "%-28s lines %8s  branches %8s (%s missed)\n", $1, $10, $13, $12}' |
    sed 1d

  echo "== $target: $seconds seconds of fuzzing"
  LLVM_PROFILE_FILE=/dev/null "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="$build/found/$target-" "$corpus" "$seeds" 2>"$build/$target.log" ||
    { tail -40 "$build/$target.log" >&2; echo "fuzz: $target failed; the input is in $build/found/" >&2; exit 1; }
  grep -E 'stat::(number_of_executed_units|peak_rss_mb)' "$build/$target.log"
done
