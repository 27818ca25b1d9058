#!/usr/bin/env bash
# shard.sh SHARD | --list | --of N: runs one shard of the full suite, lists them, or names the Nth by rotation.
# With RECORD=1 a finished shard writes its row of docs/test-matrix.md.
set -euo pipefail
cd "$(dirname "$0")/.."
shards=(capture rights removal fuzz operations)
make="make --no-print-directory"
e2e() {
	$make cluster-up image image-workload
	hack/e2e.sh -v -run "$1"
}
# record RESULT: this commit and the result go into the shard's row.
record() {
	[ -n "${RECORD:-}" ] || return 0
	sed -i -E "s#^(\| $shard \|.*\| \`make test-shard SHARD=$shard\` \|).*#\1 $(git rev-parse --short HEAD) | $1, $((SECONDS / 60)) min |#" docs/test-matrix.md
}
shard=${1:-}
case "$shard" in
--list)
	echo "${shards[@]}"
	exit
	;;
--of)
	echo "${shards[$2 % ${#shards[@]}]}"
	exit
	;;
capture | rights | removal | fuzz | operations) trap '[ $? -eq 0 ] && record passed || record failed' EXIT ;;
*)
	echo "which shard? SHARD=${shards[*]// /|}" >&2
	exit 2
	;;
esac
case "$shard" in
capture) e2e '^Test(Exactness|SourceExample|TwoCaptures|CaptureAfterCapture|ScaleAndRollout|KilledProbe|IdleManager|Plugin|Filter|PacketLimit|Audit)' ;;
rights) e2e '^Test(Rights|Results|Revoked|WithoutAValidStamp|NamespaceMadeAnew)' ;;
removal) e2e '^Test(Deleting|OperatorGone|Uninstall)' ;;
fuzz) $make test-fuzz FUZZTIME=30s ;;
operations) e2e '^TestOps' ;;
esac
