#!/usr/bin/env bash
# fuzz.sh TIME [PART/PARTS]: runs the fuzz tests for TIME each, one after the other. With 2/3 it runs the second of three
# parts.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz DIR NAME TIME runs in the directory, because that may belong to another module.
fuzz() {
	echo "=== $1 $2"
	(cd "$1" && go test . -run '^$' -fuzz "^$2\$" -fuzztime "$3" -fuzzminimizetime 200x) 2>&1 | tee "$log" && return
	# On a busy machine go test may report the end of the time as a failure. It then names no
	# input and prints nothing else.
	if grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input|_test\.go:|panic' "$log"; then
		echo "=== $2: the time ran out while an input was running; no input failed"
		return
	fi
	return 1
}

part=${2:-1/1}
number=0 count=0
while read -r file; do
	for name in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
		number=$((number + 1))
		((number % ${part#*/} == ${part%/*} % ${part#*/})) || continue
		fuzz "$(dirname "$file")" "$name" "$1"
		count=$((count + 1))
	done
done < <(grep -rlE '^func Fuzz' --include='*_test.go' . | LC_ALL=C sort)
echo "$count passed, 0 failed"
