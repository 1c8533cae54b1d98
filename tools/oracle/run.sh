#!/bin/bash
# Regenerates every committed golden with the references it comes from (see README.md beside this file), in a virtual
# environment of its own below the cache folder. Usage: run.sh [--environment-only]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/longheads
environment=$cache/oracle-venv
requirements=$here/requirements.txt
model=$cache/SmolLM2-135M-Instruct.Q4_1.gguf
python=${PYTHON:-python3}

fail() {
  echo "oracle: $*" >&2
  exit 2
}

# The stamp is written last: an interrupted installation is done again.
stamp=$environment/requirements.installed
if ! cmp -s "$requirements" "$stamp"; then
  "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    fail "$python is not Python 3.11, which the pinned packages need; name one with PYTHON=..."
  echo "oracle: installing torch and transformers into $environment (about 2.5 GB to fetch, 4.5 GB on disk)" >&2
  rm -rf "$environment"
  "$python" -m venv "$environment" || fail "no virtual environment could be made; on Debian install python3-venv"
  "$environment/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-deps -r "$requirements" ||
    fail "the packages of $requirements could not be installed; is there a network?"
  cp "$requirements" "$stamp"
fi
[[ ${1:-} == --environment-only ]] && exit 0

[[ -f $model ]] || fail "the default model is missing: $model (the demo fetches it)"

# One thread: the last digits of the goldens then do not depend on the number of cores.
cd "$here/../.."
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONDONTWRITEBYTECODE=1
for script in "$here"/*_goldens.py; do
  echo "oracle: $(basename "$script")" >&2
  "$environment/bin/python" "$script"
done
