#!/usr/bin/env bash
# shard.sh SHARD | --list | --of N: runs one shard of the full suite, lists all shards, or prints the Nth of CI's rotation.
# With RECORD=1 a finished shard writes its row of docs/test-matrix.md.
set -euo pipefail
cd "$(dirname "$0")/.."
# CI runs one of these after make test, so none may take more than 15 minutes.
rotation=(capture gate rights removal fuzz-filters fuzz-parsers-1 fuzz-parsers-2 fuzz-parsers-3 security security-rights operations bundle olm
	faults faults-bpf trace-faults limits kernels schedules fluentpvc intercept collector collector-faults)
# The others run by hand before a release.
shards=("${rotation[@]}" scale floods intercept-faults)
make="make --no-print-directory"
e2e() {
	$make cluster-up image image-workload image-collector
	hack/e2e.sh -v -run "$@"
}
# Some shards start a cluster of their own and remove it at the end. If that cluster is already up, another shard may be
# using it, so this one stops.
in_use=3
own_cluster() {
	export INSTANCE=1 SONDE_CLUSTER_INSTANCE=1
	if [ -e "${XDG_CACHE_HOME:-$HOME/.cache}/sonde/cluster/run1" ]; then
		echo "cluster 1 is in use: wait for the other shard, or, if none runs, run \`make cluster-down INSTANCE=1\`" >&2
		exit $in_use
	fi
	own_cluster_up=1
}
openshift() {
	export OPENSHIFT=1
	own_cluster
}
# Gives the nodes their own disks, which tests fill and freeze.
node_disks() {
	export NODE_DISK=2Gi
	own_cluster
}
# record RESULT writes this commit and the result into the shard's row.
record() {
	[ -n "${RECORD:-}" ] || return 0
	sed -i -E "s#^(\| $shard \|.*\| \`make test-shard SHARD=$shard\` \|).*#\1 $(git rev-parse --short HEAD) | $1, $((SECONDS / 60)) min |#" docs/test-matrix.md
}
own_cluster_up=
finish() {
	local status=$?
	[ "$status" -ne $in_use ] || return 0
	if [ "$status" -eq 0 ]; then record passed; else record failed; fi
	[ -z "$own_cluster_up" ] || $make cluster-down
}
shard=${1:-}
case "$shard" in
--list)
	echo "${shards[@]}"
	exit
	;;
--of)
	echo "${rotation[$2 % ${#rotation[@]}]}"
	exit
	;;
esac
if [[ ! $shard =~ ^[a-z0-9-]+$ || " ${shards[*]} " != *" $shard "* ]]; then
	echo "which shard? SHARD=$(IFS='|' && echo "${shards[*]}")" >&2
	exit 2
fi
trap finish EXIT
case "$shard" in
capture)
	SONDE_ENGINE=afpacket e2e '^Test(Exactness|SourceExample|TwoCaptures|CaptureAfterCapture|ScaleAndRollout|KilledProbe|IdleManager|Plugin|Doctor|Filter|PacketLimit|Audit|Trace)'
	SONDE_ENGINE=bpf e2e '^Test(Exactness|SourceExample|TwoCaptures|CaptureAfterCapture|ScaleAndRollout|KilledProbe|IdleManager|PluginCapture|PluginInterrupted|PluginProcesses|Filter|PacketLimit)'
	;;
gate)
	export SONDE_FIGURES=$PWD/build/gate
	rm -rf "$SONDE_FIGURES" && mkdir -p "$SONDE_FIGURES"
	e2e '^TestGate'
	[ -z "${RECORD:-}" ] || hack/section.sh docs/benchmarks.md gate <"$SONDE_FIGURES/gate.md"
	;;
rights)
	e2e '^Test(Rights|Results|Revoked|WithoutAValidStamp|NamespaceMadeAnew|SccPodSecurity|Privilege|Engine)'
	# The tests of make test-e2e, with probes that have three capabilities instead of all privileges.
	SONDE_PROBE_PRIVILEGE=Capabilities e2e '^Test(Exactness|SourceExample|KilledProbe|Plugin|ResultsNeedTheVerb|DeletingTheCapture|Trace)'
	SONDE_ENGINE=bpf SONDE_PROBE_PRIVILEGE=Capabilities e2e '^Test(Exactness|SourceExample|KilledProbe|DeletingTheCapture)'
	;;
removal)
	for engine in afpacket bpf; do
		SONDE_ENGINE=$engine e2e '^Test(Deleting|OperatorGone|Uninstall)'
	done
	;;
fuzz-filters) $make test-filters EXPRESSIONS=2000 ;;
fuzz-parsers-*) $make test-fuzz FUZZTIME=30s FUZZPART="${shard##*-}/3" ;;
security)
	openshift
	e2e '^TestAttack'
	;;
security-rights)
	openshift
	e2e '^Test(Scc|Privilege|Rbac|Engine)'
	;;
operations) e2e '^TestOps' ;;
bundle)
	own_cluster # of one node, whatever number the other one has
	$make bundle-validate preflight plugin-archives scorecard NODES=1
	;;
olm)
	openshift
	$make test-olm NODES=1 NODE_DISK=16Gi # OLM installs the default --disk-floor, and the machine's disk may be fuller
	;;
faults)
	own_cluster # the tests kill its nodes and API server
	table=$(mktemp)
	SUITE=faults SONDE_ENGINE=afpacket SONDE_FAULTS_TABLE=$table e2e '^Test(Matrix|Snapshot|TargetSnapshot)'
	[ -z "${RECORD:-}" ] || hack/section.sh docs/reliability.md matrix <"$table"
	rm "$table"
	;;
faults-bpf) # the same matrix, with captures by BPF programs
	own_cluster
	SUITE=faults SONDE_ENGINE=bpf e2e '^TestMatrix'
	;;
trace-faults)
	own_cluster
	table=$(mktemp)
	SUITE=faults SONDE_GATES_TABLE=$table e2e '^TestGates'
	[ -z "${RECORD:-}" ] || hack/section.sh docs/reliability.md gates <"$table"
	rm "$table"
	;;
limits)
	node_disks
	SONDE_ENGINE=afpacket e2e '^TestLimits'
	SONDE_ENGINE=bpf e2e '^TestLimits(Disk|Floor|Overload|Rotate|Stop|Volume)'
	;;
kernels)
	table=$(mktemp)
	VM_TABLE=$table $make test-vm
	[ -z "${RECORD:-}" ] || hack/section.sh docs/tested.md kernels <"$table"
	rm "$table"
	;;
schedules) $make test-schedules SCHEDULES=1000 ;;
fluentpvc) e2e '^TestFluentPVC' ;;
collector)
	$make image-registry
	SONDE_REGISTRY=sonde.local/registry:1 e2e '^TestCollector'
	;;
collector-faults) $make test-releaser ;;
intercept)
	go test -count=1 -v -run '^TestMemory$' ./agents/stowaway
	e2e '^TestIntercept'
	;;
intercept-faults)
	own_cluster
	export SONDE_INTERCEPTS_TABLE=$PWD/build/intercepts.md
	rm -f "$SONDE_INTERCEPTS_TABLE"
	failed=
	SUITE=faults e2e '^TestIntercepts$' -timeout 2h || failed=1 # on a machine with slow system calls it takes longer than an hour
	[ -z "${RECORD:-}" ] || [ ! -e "$SONDE_INTERCEPTS_TABLE" ] || hack/section.sh docs/reliability.md intercepts <"$SONDE_INTERCEPTS_TABLE"
	[ -z "$failed" ]
	;;
floods) # of one node, which the flooder and its victim share
	own_cluster
	export NODES=1 SONDE_FLOODS_TABLE=$PWD/build/floods.md
	rm -f "$SONDE_FLOODS_TABLE"
	failed=
	e2e '^TestFloods$' || failed=1
	# Record also figures that missed their goal.
	[ -z "${RECORD:-}" ] || hack/section.sh docs/reliability.md floods <"$SONDE_FLOODS_TABLE"
	[ -z "$failed" ]
	;;
scale)
	own_cluster
	export NODES=1 SONDE_FIGURES=$PWD/build/scale
	rm -rf "$SONDE_FIGURES" && mkdir -p "$SONDE_FIGURES"
	failed=
	e2e '^TestScale(FluentPVC|Collectors)?$' -timeout 100m || failed=1
	# Record also figures that missed their goal.
	[ -z "${RECORD:-}" ] || {
		printf '| what | goal | reached |\n|---|---|---|\n'
		cat "$SONDE_FIGURES"/*.md
	} | hack/section.sh docs/benchmarks.md scale
	[ -z "$failed" ]
	;;
esac
