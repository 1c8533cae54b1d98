#!/bin/sh
# Compares all methods on the default model: sh tools/eval/compare.sh [DIR]
#
# Pass keys (5 depths up to 16k, 4 at 32k, 3 at 64k for methods of constant cost) and perplexity (the last 512 tokens of
# each length of a piece of Jane Austen's novels, to 16k for methods of dense cost), into DIR/passkey.* and DIR/ppl.*,
# with plots and DIR/tables.md; DIR is docs/results/methods unless it is given. In float32, but for the pass keys at 32k
# of methods of dense cost, which would take as long as all the others: those are in bfloat16, in DIR/dense-32k. Some 9
# hours of 2 cores without AVX-512; it goes on where it was stopped, the cheaper runs first. Build the program before
# (make build).
set -eu
case ${1:-} in
  -*) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

here=$(cd "$(dirname "$0")" && pwd)
program=$here/../../build/longheads
out=${1:-$here/../../docs/results/methods}
mkdir -p "$out"
text=${XDG_CACHE_HOME:-$HOME/.cache}/longheads/austen.txt
[ -s "$text" ] || sh "$here/text.sh" austen "$text"
# ESA scores by a compression that is fitted to the model; the same at every fit.
"$program" fit-esa >/dev/null

# What a token of a prompt costs does not grow with the text, but for the choice among chunks, blocks or tokens.
constant='longheads;longheads,begin=window;streaming-llm;lm-infinite;lm-infinite,top_k=5;infllm;moba'
# Every token of a prompt meets all before it.
dense='full;pi+full;ntk+full;dynamic-ntk+full;yarn+full;self-extend,group=auto;rerope;leaky-rerope;quest'
# A chunk of queries scores every token before it, in a few dimensions.
scoring='esa'

passkey() { "$program" eval passkey --compute f32 --out "$out" "$@"; }
ppl() { "$program" eval ppl --compute f32 --text "$text" --samples 1 --score 512 --out "$out" "$@"; }

passkey --attn "$dense;$scoring;$constant" --lengths 4k,8k --depths 5
passkey --attn "$constant;$scoring;$dense" --lengths 16k --depths 5
ppl --attn "$constant;$scoring" --lengths 4k,16k,32k
ppl --attn "$dense" --lengths 4k,16k
passkey --attn "$constant;$scoring" --lengths 32k --depths 4
passkey --attn "$constant" --lengths 64k --depths 3
"$program" eval passkey --compute bf16 --out "$out/dense-32k" --attn "$dense" --lengths 32k --depths 4
python3 -B "$here/plot.py" "$out" "$out/dense-32k" --alike compute,kv --out "$out" >"$out/tables.md"
