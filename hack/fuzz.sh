#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz test of the module for TIME each, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do
	dir=$(dirname "$file")
	for name in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
		echo "=== $dir $name"
		go test "$dir" -run '^$' -fuzz "^$name\$" -fuzztime "$1"
	done
done
