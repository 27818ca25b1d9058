#!/usr/bin/env bash
# install.sh [--remove]: installs the operator with image IMG, or removes it and all of its objects. For tests,
# SONDE_ENGINE=bpf|afpacket sets the engine of all captures that name none.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root"
if [ "${1:-}" = --remove ]; then
	"${kubectl[@]}" delete --ignore-not-found --wait=true -k config/default
	exit
fi
[ -z "$local_cluster" ] || "$cluster" load "build/sonde.tar=$IMG" "build/releaser.tar=$RELEASER_IMG"
# Set the image in a copy, so that the tree stays unchanged.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r config "$work/"
sed -i "s#quay.io/sonde/sonde:dev#$IMG#; s#quay.io/sonde/sonde-releaser:dev#$RELEASER_IMG#" "$work/config/manager/manager.yaml"
# A developer's disk is fuller than a node's, so probes keep less of it free.
[ -z "$local_cluster" ] || sed -i 's#^        env:$#&\n        - {name: SONDE_DISK_FLOOR, value: 256Mi}#' "$work/config/manager/manager.yaml"
[ -z "${SONDE_ENGINE:-}" ] || sed -i "/^ *engine:\$/{n;s/default: .*/default: $SONDE_ENGINE/}" "$work"/config/crd/bases/*packetcaptures.yaml
# Only new Pods use a new image under an old name. A local image has a digest, so they come when it has changed.
before=
if [ -n "$local_cluster" ]; then
	digest=$(cat build/sonde.tar build/releaser.tar | sha256sum | cut -c1-16)
	sed -i "s#^        kubectl.kubernetes.io/default-container: .*#&\n        sonde.local/images: $digest#" "$work/config/manager/manager.yaml"
else
	before=$("${kubectl[@]}" -n sonde-system get deployment sonde-manager --ignore-not-found -o name)
fi
"${kubectl[@]}" apply --server-side --force-conflicts -k "$work/config/default" >/dev/null
[ -z "$before" ] || "${kubectl[@]}" -n sonde-system rollout restart deployment/sonde-manager >/dev/null
"${kubectl[@]}" -n sonde-system rollout status deployment/sonde-manager --timeout=180s
