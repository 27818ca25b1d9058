#!/usr/bin/env bash
# olm.sh ARGS...: loads images, bundles and OLM's own images into the running cluster, and runs the tests of test/olm there.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root"
[ -n "$local_cluster" ] || { echo "the tests install OLM, which is meant for the local cluster only: unset KUBE_CONTEXT" >&2; exit 2; }
olm=${OLM_BIN:?run make test-olm}
: "${IMAGE_TOOL:?run make test-olm}"
# The previous version is the last whose bundle was frozen.
fixture=$(printf '%s\n' test/olm/fixtures/*/ | sort -V | tail -1)
fixture=${fixture%/}
export IMAGE_TOOL SONDE_PREVIOUS=${fixture##*/}
export KUBECONFIG REQUIRE_PRIVILEGED=1
KUBECONFIG=$("$cluster" kubeconfig)
export SONDE_CLUSTER=$cluster SONDE_PLUGIN=$root/bin/kubectl-sonde SONDE_WORKLOAD=sonde.local/workload:1 SONDE_OLM=$olm SONDE_OLM_LOGS=$root/build/olm
rm -rf build/olm
mkdir -p build/olm
# csv DIR KEY: the value of a key of a bundle's ClusterServiceVersion. KEY includes the indent.
csv() { sed -n "s/^$2: //p" "$1/manifests/sonde.clusterserviceversion.yaml"; }
# bundle DIR: writes the bundle's image.
bundle() {
	local version
	version=$(csv "$1" '  version')
	"$IMAGE_TOOL" build -o "build/olm/bundle-$version.tar" --name "quay.io/sonde/sonde-bundle:v$version" --labels "$1/metadata/annotations.yaml" "manifests=$1/manifests" "metadata=$1/metadata" >/dev/null
	archives+=("build/olm/bundle-$version.tar")
}

archives=(build/workload.tar)
bundle "$fixture"
bundle bundle
previous_image=$(CLUSTER=$cluster hack/olm/previous-image.sh "$SONDE_PREVIOUS")
archives+=("$previous_image=$(csv "$fixture" '    containerImage')" "build/sonde.tar=$(csv bundle '    containerImage')")
# The embedded chart of Collectors, and its image.
archives+=("build/releaser.tar=quay.io/sonde/sonde-releaser:v$(csv bundle '  version')" build/otelcol.tar)
# The programs with which OLM v0 serves catalogs and unpacks bundles.
"$cluster" image -o build/olm/opm.tar --name sonde.local/opm:1 --user 1001:1001 "bin/opm=$olm/opm" "bin/grpc_health_probe=$olm/grpc_health_probe"
"$cluster" image -o build/olm/util.tar --name sonde.local/olm-util:1 --user 1001:1001 "bin/cpb=$olm/cpb" "bin/copy-content=$olm/copy-content" bin/cp=/bin/busybox
"$cluster" image -o build/olm/catalog.tar --name sonde.local/olm-catalog:1 --user 1001:1001 "bin/catalog=$olm/catalog"
"$cluster" load "${archives[@]}" build/olm/{opm,util,catalog}.tar
go test -tags olm -count=1 -timeout 40m "$@" ./test/olm/...
