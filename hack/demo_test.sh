#!/usr/bin/env bash
# demo_test.sh: runs what the demo prints at its end, and the first lines of docs/local-cluster.md, with a stand-in for
# the cluster program. Both must put kubectl and the plugin on the PATH and choose the cluster.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
mkdir -p "$work/home/.cache/sonde/cluster" "$work/kube" "$work/bin"
cluster=$work/home/.cache/sonde/cluster/cluster
printf '#!/bin/sh\ncase $1 in\nbin) echo %s ;;\nkubeconfig) echo %s ;;\n*) exit 64 ;;\nesac\n' "$work/kube" "$work/config" >"$cluster"
printf '#!/bin/sh\n[ "$KUBECONFIG" = %s ]\n' "$work/config" >"$work/kube/kubectl"
printf '#!/bin/sh\n' >"$work/bin/kubectl-sonde"
chmod +x "$cluster" "$work/kube/kubectl" "$work/bin/kubectl-sonde"

# reaches NAME LINES: LINES, typed in $work, make kubectl of the cluster and the plugin available.
reaches() {
	if ! (cd "$work" && env -i HOME="$work/home" PATH=/nowhere "$BASH" -euc "$2
		[ \"\$(command -v kubectl)\" = $work/kube/kubectl ] && kubectl && command -v kubectl-sonde >/dev/null"); then
		printf 'FAIL demo_test: %s does not reach the cluster:\n%s\n' "$1" "$2" >&2
		failed=1
	fi
}
printed=$(root=$work cluster=$cluster local_cluster=1 bash -euc '. hack/demo/prepare.sh; how_to_reach sonde-demo "kubectl sonde$context capture deploy/web"')
reaches "the end of the demo" "$(grep '^    export' <<<"$printed")"
reaches "docs/local-cluster.md" "$(grep -m 2 '^    export' docs/local-cluster.md)"
grep -q how_to_reach hack/demo.sh || { echo "FAIL demo_test: hack/demo.sh does not say how to reach the cluster" >&2; failed=1; }
printed=$(root=$work KUBE_CONTEXT=other WORKLOAD_IMG=w local_cluster='' bash -euc '. hack/demo/prepare.sh; how_to_reach sonde-demo "kubectl sonde$context capture deploy/web"')
grep -q 'kubectl sonde --context other capture' <<<"$printed" || { printf 'FAIL demo_test: no context in\n%s\n' "$printed" >&2; failed=1; }
exit $failed
