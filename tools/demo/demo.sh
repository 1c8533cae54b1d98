#!/bin/sh
# The main job on real input: the default model answers a question about one sentence hidden in a text twice as long
# as its window, with full attention and with LongHeads. Exit status 0 when LongHeads answers right. Run by make demo.
set -eu

cd "$(dirname "$0")/../.."
program=build/longheads
text=build/demo.txt

# Ordinary long texts that every Debian machine has; about 16 thousand tokens together.
licences=/usr/share/common-licenses
sources="GPL-3 GPL-2 MPL-2.0"
fact='Captain Harlow buried the treasure under the old lighthouse in Portmere.'
question='Where did Captain Harlow bury the treasure?'
expected=lighthouse

say() { echo "demo: $*" >&2; }
fail() {
  say "$*"
  exit 2
}

for source in $sources; do
  [ -r "$licences/$source" ] || fail "the demo's text is made of licences that Debian keeps in $licences, but $source is not there"
done
# The sentence becomes a paragraph of its own, half-way through.
(cd "$licences" && cat $sources) >"$text.whole"
awk -v fact="$fact" -v half="$(($(wc -l <"$text.whole") / 2))" \
  '{ print } !hidden && NR >= half && /^$/ { print fact "\n"; hidden = 1 }' "$text.whole" >"$text"
rm "$text.whole"
grep -qF "$fact" "$text" || fail "the sentence did not get into $text"

say "the text: three licences in a row ($sources), $(wc -w <"$text") words, about 16,000 tokens; the model was trained on 8,192"
say "hidden on line $(grep -nF "$fact" "$text" | cut -d : -f 1) of $(wc -l <"$text"): $fact"
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
