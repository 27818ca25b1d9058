#!/usr/bin/env bash
# shard.sh SHARD | --list | --of N: runs one shard of the full suite, lists them, or names the Nth by rotation.
set -euo pipefail
cd "$(dirname "$0")/.."
shards=(capture rights removal fuzz)
make="make --no-print-directory"
e2e() {
	$make cluster-up image image-workload
	hack/e2e.sh -v -run "$1"
}
case "${1:-}" in
--list) echo "${shards[@]}" ;;
--of) echo "${shards[$2 % ${#shards[@]}]}" ;;
capture) e2e "^Test(Exactness|SourceExample|TwoCaptures|CaptureAfterCapture|ScaleAndRollout|KilledProbe|IdleManager|Plugin|Filter|PacketLimit|Audit)" ;;
rights) e2e '^Test(Rights|Results|Revoked|WithoutAValidStamp|NamespaceMadeAnew)' ;;
removal) e2e '^Test(Deleting|OperatorGone|Uninstall)' ;;
fuzz) $make test-fuzz FUZZTIME=60s ;;
*)
	echo "which shard? SHARD=${shards[*]// /|}" >&2
	exit 2
	;;
esac
