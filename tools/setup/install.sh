#!/bin/sh
# Installs the Debian packages of packages.txt that are missing, or of another list here (install.sh fuzz-packages.txt);
# does nothing, and needs no rights, where all are there.
set -eu

here=$(cd "$(dirname "$0")" && pwd)

fail() {
  echo "setup: $*" >&2
  exit 2
}

packages=$(sed -n 's/^\([a-z0-9][^ ]*\) .*/\1/p' "$here/${1:-packages.txt}")

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: not a Debian system, so nothing is installed; the build needs what these Debian packages hold:" \
    $packages >&2
  exit 0
fi

# Virtual and removed packages print nothing or another status: only what is installed counts.
missing=
for package in $packages; do
  status=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | sort -u) || status=
  case $status in
  *installed) [ "$status" = installed ] || missing="$missing $package" ;;
  *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root=
elif command -v sudo >/dev/null; then
  as_root="sudo"
else
  fail "these packages are missing and only root can install them (there is no sudo here); as root, run:" \
    "apt-get install -y --no-install-recommends$missing"
fi

echo "setup: installing$missing" >&2
apt_get() {
  # A daily upgrade may hold the lock for a while. Nothing here may ask questions.
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null
}
# A failing repository of the user's own must not stop us while the packages can be had: the installation decides.
apt_get update >/dev/null || echo "setup: apt-get update reported errors; going on with the lists there are" >&2
apt_get install --no-install-recommends $missing >&2 ||
  fail "apt-get could not install$missing; its reason stands above (a machine without network?)"
