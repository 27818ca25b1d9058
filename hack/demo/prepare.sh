# prepare.sh prepares the local cluster, or another, for a demo, and installs the operator. Source it after hack/env.sh.
# It sets workload_image and defines step, which prints how long a command took.
step() {
	local start=$SECONDS what=$1
	shift
	printf '\n--- %s\n' "$what"
	"$@"
	printf '    %s: %d s\n' "$what" $((SECONDS - start))
}
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
