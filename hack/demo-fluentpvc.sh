#!/usr/bin/env bash
# demo-fluentpvc.sh: two Pods write into volumes of their own, are deleted, and a Job reads each volume before it goes
# (docs/fluentpvc.md). It prints each command before it runs, so that users can type it again.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root"
. hack/demo/prepare.sh
prepare
ns=sonde-demo-fluentpvc
export PATH=$path:$PATH
for manifest in fluentpvc fluentpvc-writer; do
	mkdir -p build/demo
	sed "s#sonde.local/workload:1#$workload_image#" hack/demo/$manifest.yaml >build/demo/$manifest.yaml
done
# await COMMAND...: repeats it until it succeeds, for a minute.
await() {
	local n
	for n in $(seq 60); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 1
	done
	"$@"
}
"${kubectl[@]}" delete namespace $ns --ignore-not-found >/dev/null

say 'A platform engineer defines the volume, the sidecar and the finalizer Job, once.'
run "kubectl$context apply --server-side -f build/demo/fluentpvc.yaml"
say 'The admin of a namespace lets the operator create volumes and Jobs in it.'
run "kubectl sonde$context fluentpvc allow -n $ns"
run "kubectl$context wait fluentpvc/sonde-demo-logs --for=condition=Ready --timeout=60s"
say 'A developer adds one annotation to a Pod template. Each Pod gets a volume and the sidecar.'
run "kubectl$context apply --server-side -f build/demo/fluentpvc-writer.yaml"
run "kubectl$context rollout status -n $ns deployment/writer --timeout=120s"
run "kubectl$context get fluentpvcbindings,pvc,pods -n $ns"
say 'The Pods go away. A Job reads each volume and prints the SHA-256 of the report.'
run "kubectl$context delete deployment writer -n $ns"
succeeded() { [ "$("${kubectl[@]}" get fluentpvcbindings -n $ns -o 'jsonpath={.items[*].status.phase}')" = "FinalizerJobSucceeded FinalizerJobSucceeded" ]; }
await succeeded
run "kubectl$context get fluentpvcbindings,jobs -n $ns"
run "kubectl$context logs -n $ns -l monitoring.openshift.tpg/kind=FluentPVCBinding --prefix"
say 'After two minutes the volumes are deleted by themselves. Discard them now:'
run "kubectl get fluentpvcbindings$context -n $ns -o name | sed 's#.*/##' | xargs -n 1 kubectl sonde$context fluentpvc discard --yes -n $ns"
gone() { [ -z "$("${kubectl[@]}" get fluentpvcbindings,pvc,jobs -n $ns -o name)" ]; }
await gone
run "kubectl$context get fluentpvcbindings,pvc,jobs -n $ns"
how_to_reach $ns "kubectl sonde$context doctor"
how_to_remove "kubectl$context delete namespace $ns" "kubectl$context delete fluentpvc sonde-demo-logs"
