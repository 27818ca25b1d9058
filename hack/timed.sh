#!/usr/bin/env bash
# timed.sh TARGET...: makes each target in turn and prints how long each took. The times are for
# people; nothing fails for being slow.
set -euo pipefail
declare -a lines
trap 'status=$?; printf "\n"; printf "%s\n" "${lines[@]:-}"; exit $status' EXIT
for target in "$@"; do
	start=$SECONDS
	printf '\n=== make %s\n' "$target"
	if ! make --no-print-directory "$target"; then
		lines+=("$(printf 'FAILED %-12s %5d s' "$target" $((SECONDS - start)))")
		exit 1
	fi
	lines+=("$(printf 'ok     %-12s %5d s' "$target" $((SECONDS - start)))")
done
