#!/usr/bin/env bash
# crd-upgrade.sh [DIR]: may the CRDs of a bundle follow those of the last release? CRDIFY is the built crdify.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:-bundle}
: "${CRDIFY:?start this by make bundle-validate}"
last=$(printf '%s\n' test/olm/fixtures/*/ | sort -V | tail -1)
for old in "$last"manifests/monitoring.openshift.tpg_*.yaml; do
	new=$dir/manifests/$(basename "$old")
	[ -e "$new" ] || { echo "$new is missing: a kind that was released stays" >&2; exit 1; }
	"$CRDIFY" --config hack/crdify/config.yaml "file://$PWD/$old" "file://$(realpath "$new")" || { echo "$new: its users could not upgrade" >&2; exit 1; }
done
echo "crdify: the CRDs may follow those of $(basename "$last")"
