# prepare.sh prepares the local cluster, or another, for a demo, and installs the operator. Source it after hack/env.sh.
# It sets workload_image, context (kubectl's flag for another cluster) and path (where the printed commands are found), and
# defines step, which prints how long a command took, say and run for demos that print their commands, how_to_reach, which
# prints how to use the cluster afterwards, and how_to_remove.
step() {
	local start=$SECONDS what=$1
	shift
	printf '\n--- %s\n' "$what"
	"$@"
	printf '    %s: %d s\n' "$what" $((SECONDS - start))
}
say() { printf '\n# %s\n' "$@"; }
run() {
	printf '\n$ %s\n' "$1"
	eval "$1"
}
context= instance=
[ "${SONDE_CLUSTER_INSTANCE:-0}" = 0 ] || instance=" INSTANCE=$SONDE_CLUSTER_INSTANCE"
[ -z "${KUBE_CONTEXT:-}" ] || context=" --context $KUBE_CONTEXT"
# The printed commands say kubectl; here that is the cluster's own.
path=$root/bin
if [ -n "$local_cluster" ]; then
	mkdir -p build/demo
	printf '#!/bin/sh\nSONDE_CLUSTER_INSTANCE=%s exec %s kubectl "$@"\n' "${SONDE_CLUSTER_INSTANCE:-0}" "$cluster" >build/demo/kubectl
	chmod +x build/demo/kubectl
	path=$root/build/demo:$path
fi
workload_image=${WORKLOAD_IMG:-sonde.local/workload:1}
if [ -z "$local_cluster" ] && [ -z "${WORKLOAD_IMG:-}" ]; then
	echo "KUBE_CONTEXT=$KUBE_CONTEXT also needs WORKLOAD_IMG=registry/image:tag: the demo's workload in a registry from which this cluster can pull (make image-workload builds build/workload.tar)" >&2
	exit 2
fi
prepare() {
	local make="make --no-print-directory"
	if [ -n "$local_cluster" ]; then
		step "local cluster" $make cluster-up
		step "images" $make image image-workload
		step "load the workload's image" "$cluster" load build/workload.tar
	else
		step "build" $make build
	fi
	step "install the operator" env KUBE_CONTEXT="${KUBE_CONTEXT:-}" IMG="$IMG" hack/install.sh
}
# how_to_reach NAMESPACE COMMAND: COMMAND is an example.
how_to_reach() {
	printf '\nTo use this cluster in your shell:\n\n'
	if [ -n "$local_cluster" ]; then
		printf '    export KUBECONFIG=%s PATH=%s/bin:$PATH:%s\n' "$("$cluster" kubeconfig)" "$root" "$("$cluster" bin)"
	else
		printf '    export PATH=%s/bin:$PATH\n' "$root"
	fi
	printf '    kubectl%s get pods -n %s\n    %s\n' "$context" "$1" "$2"
}
# how_to_remove COMMAND...: what removes the demo. The local cluster can go as a whole.
how_to_remove() {
	say 'To remove the rest:'
	printf '\n'
	printf '$ %s\n' "$@"
	[ -z "$local_cluster" ] || printf '\n# Or the whole cluster:\n\n$ make cluster-down%s\n' "$instance"
}
