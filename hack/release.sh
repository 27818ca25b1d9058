#!/usr/bin/env bash
# release.sh VERSION: prepares the next version in this tree and prints the remaining steps. It commits, tags and publishes
# nothing. OPM=program renders the catalog with that opm; otherwise opm is built, which takes minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
next=${1:-}
make="${MAKE:-make} --no-print-directory"
read -r current _ <VERSION
frozen=test/olm/fixtures/$current
stop() {
	echo "release: $1" >&2
	exit 1
}

# --- Checks --------------------------------------------------------------------
number='(0|[1-9][0-9]*)'
[[ $next =~ ^$number\.$number\.$number$ ]] || stop "\"$next\" is not a version like 0.3.0, without a v"
newest=$(printf '%s\n' "$current" "$next" | sort -V | tail -n1)
[ "$next" != "$current" ] && [ "$newest" = "$next" ] || stop "$next is not above $current, which the file VERSION holds"
[ -z "$(git status --porcelain)" ] || stop "the tree has changes (git status): commit them, as they would become part of $next unseen"
grep -q '^## Unreleased$' CHANGELOG.md || stop "CHANGELOG.md has no section \"## Unreleased\": add it"
published=$(git rev-parse --verify --quiet "v$current^{commit}") ||
	stop "there is no tag v$current, which says what was published as $current: git fetch --tags, or git tag v$current COMMIT"
[ ! -e "$frozen" ] || stop "$frozen is there already: $current was frozen before, so set VERSION to what the tree is"
$make bundle VERSION="$current" >/dev/null
[ -z "$(git status --porcelain)" ] || stop "the bundle of $current is stale (git diff): run make generate bundle, and commit"

# --- The last version, as the upgrade tests and the catalog need it --------------
# Use the published bundle: the tree's bundle contains later changes.
mkdir -p "$frozen"
git archive "$published" bundle | tar -x --strip-components=1 -C "$frozen"
echo "$published" >"$frozen/COMMIT"

# --- The next one ------------------------------------------------------------------
day=$(date -u +%F)
echo "$next $day" >VERSION
sed -i "0,/^- {schema: olm.bundle/s//  - {name: sonde.v$next, replaces: sonde.v$current}\n&/" catalog/template.yaml
echo "- {schema: olm.bundle, image: \"quay.io/sonde/sonde-bundle:v$next\"}" >>catalog/template.yaml
# An empty section gets a sentence that says so.
awk -v title="## $next ($day)" '
	/^## / && open { if (!said) print "Nothing that users notice.\n"; open = 0 }
	/^## Unreleased$/ { print; print ""; print title; open = 1; next }
	open && NF { said = 1 }
	{ print }' CHANGELOG.md >CHANGELOG.new
mv CHANGELOG.new CHANGELOG.md
$make bundle VERSION="$next" RELEASED="$day"
if [ -z "${OPM:-}" ]; then
	$make catalog VERSION="$next"
else
	VERSION=$next hack/catalog.sh
fi

cat <<EOF

This tree is $next now; $current is frozen in $frozen. Left to do:
  read git diff CHANGELOG.md, then git add -A && git commit -m "Release $next"
  make test, and the shards of docs/test-matrix.md
  git tag v$next && git push origin main v$next
  make image-multiarch, then make image-push IMG=quay.io/sonde/sonde:v$next   prints two digests
  make bundle-build RELEASE_IMG=quay.io/sonde/sonde@sha256:... RELEASER_RELEASE_IMG=quay.io/sonde/sonde-releaser@sha256:...   and push build/bundle.tar by bin/image push
  make catalog-build   and push build/catalog.tar by bin/image push build/catalog.tar quay.io/sonde/sonde-catalog:v$next
  make plugin-archives   and publish build/plugin/
docs/releasing.md has each step with its output.
EOF
