#!/bin/sh
# Writes a long text for `longheads eval`: sh tools/eval/text.sh austen|kjv [FILE]
# Without FILE it goes to ${XDG_CACHE_HOME:-$HOME/.cache}/longheads/austen.txt (or kjv.txt), where tasks look for it.
#
#   austen  Jane Austen's six novels, 1811 to 1817, one after the other as Project Gutenberg has them: 4.0 MB, from
#           Debian's r-cran-janeaustenr. The novels are in the public domain; the package is under the MIT licence.
#   kjv     The King James Bible, 1611: 4.3 MB, from Debian's bible-kjv-text, whose copyright file says that the text's
#           has expired; its program bible-kjv (free to copy and change; parts GPL-2+) prints it.
#
# Packages are fetched and unpacked beside FILE for the moment; nothing is installed. The texts are pinned by checksum.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
fail() {
  echo "text.sh: $*" >&2
  exit 2
}

[ $# = 1 ] || [ $# = 2 ] || fail "usage: sh tools/eval/text.sh austen|kjv [FILE]"
case $1 in
austen)
  packages=r-cran-janeaustenr
  checksum=65b434d16a8755142bfa95ba19c5f9abd0d30cf3dffe3b6793e834f9f56dcc96
  ;;
kjv)
  packages="bible-kjv-text bible-kjv"
  checksum=82fa5f3788c6a9a010fb128a0f0bf588984b5888a82058520620eded59b033ea
  ;;
*) fail "'$1' is no text of ours: write austen or kjv" ;;
esac
if [ $# = 1 ]; then
  folder=${XDG_CACHE_HOME:-$HOME/.cache}/longheads
  mkdir -p "$folder"
  set -- "$1" "$folder/$1.txt"
fi
folder=$(cd "$(dirname "$2")" 2>/dev/null && pwd) || fail "$2 cannot be written: its folder is not there"
file=$folder/$(basename "$2")
command -v apt-get >/dev/null || fail "the texts come in Debian packages, and there is no apt-get here"

work=$(mktemp -d "$folder/.text-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
fetch() { apt-get -q download $packages >"$work/log" 2>&1; }
# Where the lists of packages were never fetched, only root can fetch them.
fetch || { apt-get -q update >/dev/null 2>&1 && fetch; } ||
  fail "apt-get could not download $packages: $(tail -n 1 "$work/log") (after 'apt-get update' as root it may)"
for package in *.deb; do dpkg-deb -x "$package" .; done
case $1 in
austen) python3 -B "$here/r_strings.py" usr/lib/R/site-library/janeaustenr/data/Rdata.rdb >text ;;
kjv) usr/bin/bible -l79 -p usr/lib 'Gen1:1-Rev22:21' >text ;;
esac
echo "$checksum  text" | sha256sum -c --status ||
  fail "the text is not the one that was pinned: Debian has another version of $packages"
mv text "$file"
echo "$file: $(wc -c <"$file") bytes, $(wc -w <"$file") words" >&2
