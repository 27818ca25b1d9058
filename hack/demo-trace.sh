#!/usr/bin/env bash
# demo-trace.sh [--installed]: traces a slow service from the symptom to the cause and the repair
# (docs/guide/slow-call.md). It prints each command before it runs, so that users can type it again. With --installed the
# operator and the images must be there already. With KEEP=1 it leaves everything in place at the end.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root"
. hack/demo/prepare.sh
was_up=
[ "${1:-}" = --installed ] || {
	! "$cluster" kubeconfig >/dev/null 2>&1 || was_up=1
	prepare
}
ns=sonde-demo-trace

say 'To type these commands yourself, run KEEP=1 make demo-trace in this directory, and then'
run "export PATH=$path:\$PATH"

manifest=hack/demo/prices.yaml
if [ "$workload_image" != sonde.local/workload:1 ]; then
	mkdir -p build
	manifest=build/prices.yaml
	sed "s#sonde.local/workload:1#$workload_image#" hack/demo/prices.yaml >$manifest
fi
# EAGAIN means that there is nothing to do yet; it is not a failure.
failures='select(.errno and .errno != "EAGAIN") | [.pod, .call, .errno, .path] | @tsv'
# An earlier run may have left the repaired service.
"${kubectl[@]}" delete namespace $ns --ignore-not-found >/dev/null

say 'A service of two Pods, and a client that asks it all the time.'
run "kubectl$context apply --server-side -f $manifest"
run "kubectl$context rollout status -n $ns deployment/prices --timeout=120s"
run "kubectl$context rollout status -n $ns deployment/client --timeout=120s"

say 'The symptom: an answer takes a fifth of a second, and the log is empty.'
run "kubectl$context exec -n $ns deployment/client -- /workload ask -url http://prices/price"
run "kubectl$context logs -n $ns -l app=prices"

say 'Trace its Pods.'
run "kubectl sonde$context trace deploy/prices -n $ns --for 10s --events process,file,network -o before.ndjson --force --quiet"

say 'No call is slow: the time passes between calls. Two calls fail again and again: a file is missing, and a connection is refused. When?'
run "kubectl sonde trace read before.ndjson --call openat,connect | sed -n 11,20p"

say 'Do they fail in both Pods, and in every request?'
run "jq -r '$failures' before.ndjson | sort | uniq -c"

say 'Each request tries a missing cache once, then the list of prices four times, 50 ms apart, and goes on without them. The list has another name:'
run "kubectl$context get configmap -n $ns prices -o jsonpath='{.data}{\"\\n\"}'"

say 'The cure: the right name, and no cache.'
run "kubectl$context set env -n $ns deployment/prices PRICES=/etc/prices/price-list.json CACHE="
run "kubectl$context rollout status -n $ns deployment/prices --timeout=120s"

say 'The answer is fast and correct. No call fails any more, and the service reads the list:'
run "kubectl$context exec -n $ns deployment/client -- /workload ask -url http://prices/price"
run "kubectl sonde$context trace deploy/prices -n $ns --for 10s --events process,file,network -o after.ndjson --force --json | jq -c .total"
run "jq -r '$failures' after.ndjson | sort | uniq -c"
run "jq -r 'select(.call == \"openat\") | [.pod, .call, .errno // \"ok\", .path] | @tsv' after.ndjson | sort | uniq -c"

if [ -n "${KEEP:-}" ]; then
	say 'The service is repaired now. To break it again, and then type the commands from the top:'
	printf '\n$ %s\n' "export PATH=$path:\$PATH" "kubectl$context delete namespace $ns" "kubectl$context apply --server-side -f $manifest"
	exit 0
fi
say 'Clean up. Only before.ndjson and after.ndjson stay.'
run "kubectl$context delete namespace $ns"
if [ -n "$local_cluster" ] && [ -z "$was_up" ] && [ "${1:-}" != --installed ]; then
	make --no-print-directory cluster-down
fi
