#!/usr/bin/env bash
# crd-upgrade.sh [DIR]: fails if users of the last release could not upgrade to the CRDs of a bundle. CRDIFY is the built
# crdify.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:-bundle}
: "${CRDIFY:?run make bundle-validate}"
last=$(printf '%s\n' test/olm/fixtures/*/ | sort -V | tail -1)
for old in "$last"manifests/monitoring.openshift.tpg_*.yaml; do
	new=$dir/manifests/$(basename "$old")
	[ -e "$new" ] || { echo "$new is missing: do not remove a released kind" >&2; exit 1; }
	"$CRDIFY" --config hack/crdify/config.yaml "file://$PWD/$old" "file://$(realpath "$new")" || { echo "$new: existing objects would break on upgrade: keep the CRD compatible" >&2; exit 1; }
done
echo "crdify: the CRDs are compatible with version $(basename "$last")"
