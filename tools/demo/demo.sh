#!/bin/sh
# The main job on real input: the default model answers a question about a fact hidden in a text twice as long
# as its window, with full attention and with LongHeads. Exit status 0 when LongHeads answers right. Run by make demo.
set -eu

cd "$(dirname "$0")/../.."
program=build/longheads
text=build/demo.txt

# About 15 thousand tokens of plain sentences, which a model of 135 million parameters can follow.
days=430
hide=150
fact='Captain Harlow buried the treasure under the old lighthouse in Portmere. Remember it: the treasure is buried under the old lighthouse in Portmere.'
question='Where did Captain Harlow bury the treasure?'
expected=lighthouse

say() { echo "demo: $*" >&2; }
fail() {
  say "$*"
  exit 2
}

awk -v days=$days -v hide=$hide -v fact="$fact" -f tools/demo/ship_log.awk >"$text"

say "the text: the log of a ship, $days days in $(wc -w <"$text") words, about 15,000 tokens; the model was trained on 8,192"
line=$(grep -nF "$fact" "$text" | cut -d : -f 1)
say "hidden on line $line, $(tail -n +"$line" "$text" | wc -w) words before its end: more than the model's window holds"
say "the fact: $fact"
say "the question: $question"

# Sets `verdict` to right or wrong.
ask() { # TITLE SPEC
  say ""
  say "---- $1 (--attn $2)"
  start=$(date +%s)
  answer=$($program run -f "$text" -q "$question" -n 24 --attn "$2") || fail "longheads run failed"
  case $(printf %s "$answer" | tr '[:upper:]' '[:lower:]') in
  *"$expected"*) verdict=right ;;
  *) verdict=wrong ;;
  esac
  say "answer: $(printf %s "$answer" | tr '\n' ' ')"
  say "verdict: $verdict ('$expected' is $([ $verdict = right ] || echo 'not ')in the answer), $(($(date +%s) - start)) s"
}

ask 'Full attention' full
full=$verdict
ask 'LongHeads' auto
longheads=$verdict

say ""
say "full attention: $full; LongHeads: $longheads"
if [ $longheads = wrong ]; then
  say "LongHeads should have found the sentence: this is a defect"
  exit 1
fi
say "Ask about a text of yours:"
echo "$program run -f YOUR.txt -q \"What does it say about ...?\""
