#!/usr/bin/env bash
# timed.sh TARGET...: makes each target in turn and prints how long each took and how much memory. The figures are for
# people; nothing fails for being slow.
set -euo pipefail
peak=$(mktemp)
watcher=
lines=()
finish() {
	local status=$?
	[ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
	printf '\n'
	printf '%s\n' "${lines[@]}" \
		'Memory: the most that all processes of the step had resident at once, seen once a second, without a cluster that it leaves running.'
	rm -f "$peak"
	exit "$status"
}
trap finish EXIT

# resident prints how many MiB this script's processes have. Pages that several of them share count for each, but a child that was
# just forked still is its parent, and does not count.
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

# watch keeps the highest of what resident prints in the file, until it is killed.
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
