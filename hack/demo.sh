#!/usr/bin/env bash
# demo.sh: from nothing to the summary of a real capture. Each step prints how long it took.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root"
step() {
	local start=$SECONDS what=$1
	shift
	printf '\n--- %s\n' "$what"
	"$@"
	printf '    %s: %d s\n' "$what" $((SECONDS - start))
}
make="make --no-print-directory"
if [ -n "$local_cluster" ]; then
	step "local cluster" $make cluster-up
	export KUBECONFIG
	KUBECONFIG=$("$cluster" kubeconfig)
	step "images" $make image image-workload
	step "load the workload's image" "$cluster" load build/workload.tar
else
	step "build" $make build
fi
step "install the operator" env KUBE_CONTEXT="${KUBE_CONTEXT:-}" IMG="$IMG" hack/install.sh

workload() {
	"${kubectl[@]}" apply --server-side -f hack/demo/workload.yaml >/dev/null
	"${kubectl[@]}" -n sonde-demo rollout status deployment/web --timeout=120s
	"${kubectl[@]}" -n sonde-demo rollout status deployment/client --timeout=120s
}
step "a web workload with traffic" workload

# Outside the local cluster the plugin takes the same context as everything else.
plugin=(bin/kubectl-sonde)
[ -z "${KUBE_CONTEXT:-}" ] || plugin+=(--context "$KUBE_CONTEXT")
step "capture deploy/web for 10 s" "${plugin[@]}" capture deploy/web -n sonde-demo --for 10s -o demo.pcapng --force
printf '\n--- the ten busiest conversations of demo.pcapng\n'
"${plugin[@]}" conversations demo.pcapng --top 10
printf '\nOpen demo.pcapng in Wireshark. The operator and the workload are still there: make uninstall, make cluster-down.\n'
