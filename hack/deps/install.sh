#!/usr/bin/env bash
# Installs the Debian packages of packages.txt that are not yet installed.
# It prints their names. It does nothing if none is missing.
set -euo pipefail

list="$(dirname "$0")/packages.txt"
mapfile -t wanted < <(sed 's/#.*//; s/[[:space:]]*$//; /^$/d' "$list")

provided="$(dpkg-query --show --showformat='${db:Status-Status}, ${Provides},\n')"
missing=()
for package in "${wanted[@]}"; do
  # Only "installed" counts: a removed package may still have its configuration here.
  if [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ]; then
    continue
  fi
  # Another package may provide it: NodeSource's nodejs has npm, and conflicts with Debian's.
  if grep -q "^installed,.* $package," <<<"$provided"; then
    continue
  fi
  missing+=("$package")
done

if [ ${#missing[@]} -eq 0 ]; then
  echo "deps: all ${#wanted[@]} packages are installed"
  exit 0
fi
echo "deps: installing ${missing[*]}"
if [ "$(id -u)" -ne 0 ]; then
  echo "deps: not root: run this as root, e.g. sudo make deps" >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends "${missing[@]}"
echo "deps: done"
