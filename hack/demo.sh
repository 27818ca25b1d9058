#!/usr/bin/env bash
# demo.sh: starts a cluster if needed, captures a workload and prints a summary. Each step prints how long it took.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root"
. hack/demo/prepare.sh
prepare
if [ -n "$local_cluster" ]; then
	export KUBECONFIG
	KUBECONFIG=$("$cluster" kubeconfig)
fi

workload() {
	sed "s#sonde.local/workload:1#$workload_image#" hack/demo/workload.yaml | "${kubectl[@]}" apply --server-side -f - >/dev/null
	"${kubectl[@]}" -n sonde-demo rollout status deployment/web --timeout=120s
	"${kubectl[@]}" -n sonde-demo rollout status deployment/client --timeout=120s
}
step "a web workload with traffic" workload

# Outside the local cluster the plugin uses the same context as everything else.
plugin=(bin/kubectl-sonde)
[ -z "${KUBE_CONTEXT:-}" ] || plugin+=(--context "$KUBE_CONTEXT")
step "capture deploy/web for 10 s" "${plugin[@]}" capture deploy/web -n sonde-demo --for 10s -o demo.pcapng --force
printf '\n--- the ten busiest conversations of demo.pcapng\n'
"${plugin[@]}" conversations demo.pcapng --top 10
remove="make cluster-down$instance"
if [ -z "$local_cluster" ]; then
	remove="kubectl --context $KUBE_CONTEXT delete namespace sonde-demo; make uninstall KUBE_CONTEXT=$KUBE_CONTEXT"
fi
printf '\nOpen demo.pcapng in Wireshark, or type: tshark -r demo.pcapng\n'
printf 'The operator and the workload keep running. To remove them: %s\n' "$remove"
how_to_reach sonde-demo "kubectl sonde$context capture deploy/web -n sonde-demo --for 10s"
