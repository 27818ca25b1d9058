#!/usr/bin/env bash
# timed.sh TARGET...: makes the targets one after the other and prints the time and peak memory of each. The figures are
# for people; no target fails because it is slow.
set -euo pipefail
peak=$(mktemp)
watcher=
lines=()
finish() {
	local status=$?
	[ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
	printf '\n'
	printf '%s\n' "${lines[@]}" \
		'Memory: peak resident memory of all processes of the step, sampled once a second, without a cluster that keeps running.'
	rm -f "$peak"
	exit "$status"
}
trap finish EXIT

# resident prints the resident memory of this script's processes in MiB. Shared pages count once per process. A child that
# was just forked is still a copy of its parent and does not count.
resident() {
	ps -e -o pid=,ppid=,rss= | awk -v root=$$ '
		{ parent[$1] = $2; rss[$1] = $3 }
		END {
			for (p in rss) {
				more = rss[p] - rss[parent[p]]
				if (more * more * 400 < rss[p] * rss[p]) continue
				for (q = p; q != root && q in parent;) q = parent[q]
				if (q == root) sum += rss[p]
			}
			print int(sum / 1024)
		}'
}

# watch writes the highest figure of resident into the file until it is killed.
watch() {
	local most=0 now
	while sleep 1; do
		now=$(resident)
		if ((now > most)); then
			most=$now
			echo "$most" >"$peak"
		fi
	done
}

for target in "$@"; do
	start=$SECONDS result=ok
	printf '\n=== make %s\n' "$target"
	echo 0 >"$peak"
	watch &
	watcher=$!
	make --no-print-directory "$target" || result=FAILED
	kill "$watcher"
	wait "$watcher" 2>/dev/null || true
	watcher=
	lines+=("$(printf '%-6s %-12s %5d s %6d MiB' "$result" "$target" $((SECONDS - start)) "$(cat "$peak")")")
	[ "$result" = ok ] || exit 1
done
