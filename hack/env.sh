# env.sh chooses the cluster for a script that sources it. It sets kubectl (an array) and local_cluster.
# It uses the local cluster unless KUBE_CONTEXT and IMG name another.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cluster=${XDG_CACHE_HOME:-$HOME/.cache}/sonde/cluster/cluster
IMG=${IMG:-quay.io/sonde/sonde:dev}
RELEASER_IMG=${RELEASER_IMG:-quay.io/sonde/sonde-releaser:dev}
if [ -n "${KUBE_CONTEXT:-}" ]; then
	command -v kubectl >/dev/null || { echo "KUBE_CONTEXT is set, but kubectl is not in PATH: install it" >&2; exit 2; }
	if [ "$IMG" = quay.io/sonde/sonde:dev ]; then
		echo "KUBE_CONTEXT=$KUBE_CONTEXT needs IMG=registry/image:tag: an image that this cluster can pull (make image builds build/sonde.tar)" >&2
		exit 2
	fi
	local_cluster=
	kubectl=(kubectl --context "$KUBE_CONTEXT")
	echo "using the cluster of context $KUBE_CONTEXT: $("${kubectl[@]}" config view --minify -o jsonpath='{.clusters[0].cluster.server}')"
else
	local_cluster=1
	kubectl=("$cluster" kubectl)
fi
