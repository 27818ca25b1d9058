#!/usr/bin/env bash
# catalog.sh [--check]: renders catalog/sonde/catalog.yaml from catalog/template.yaml and validates it. --check fails if
# the committed file differs. The template names the bundles' images, but their contents come from this tree, so that no
# registry is needed: bundle/ for VERSION, and the frozen copy in test/olm/fixtures/ for an earlier version. OPM is the
# built opm.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${OPM:?run make catalog}" "${VERSION:?run make catalog}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/catalog/sonde" "$work/home/.config/containers"
out=$work/catalog/sonde/catalog.yaml
# opm requires a signature policy, although no image is pulled here.
echo '{"default":[{"type":"reject"}]}' >"$work/home/.config/containers/policy.json"
opm() { HOME=$work/home "$OPM" "$@"; }

# Package and channels come from the template, the icon from the bundle's source, and the bundles, each on a line of its
# own, from their directories.
icon="  icon: {mediatype: image/svg+xml, base64data: $(base64 -w0 config/manifests/icon.svg)}"
sed -e '/schema: olm.bundle/d' -e "/^  defaultChannel:/a\\$icon" catalog/template.yaml >"$work/graph.yaml"
opm alpha render-template basic "$work/graph.yaml" -o yaml >"$out"
while read -r image; do
	version=${image##*:v}
	dir=test/olm/fixtures/$version
	[ "$version" != "$VERSION" ] || dir=bundle
	[ -d "$dir" ] || { echo "catalog/template.yaml names $image, but $dir does not exist: freeze the bundle of $version there" >&2; exit 1; }
	opm render "$dir" --alpha-image-ref-template "$image" --migrate-level bundle-object-to-csv-metadata -o yaml >>"$out"
done < <(sed -n 's/.*schema: olm.bundle, image: "\(.*\)".*/\1/p' catalog/template.yaml)
opm validate "$work/catalog"
if [ "${1:-}" = --check ]; then
	diff -u catalog/sonde/catalog.yaml "$out" || { echo "stale catalog: run make catalog and commit" >&2; exit 1; }
	exit
fi
mkdir -p catalog/sonde
cp "$out" catalog/sonde/catalog.yaml
echo "catalog/sonde/catalog.yaml: $(grep -c '^schema: olm.bundle' "$out") bundle(s), valid"
