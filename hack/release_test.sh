#!/usr/bin/env bash
# release_test.sh: prepares a release in a clone of this tree, including uncommitted changes, and checks the result. A
# program that prints its arguments replaces opm; make bundle-validate tests the real one.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clone=$work/clone
failed=0
wrong() {
	echo "FAIL release_test: $1" >&2
	failed=1
}
# This test runs in make, whose variables (such as VERSION) must not reach the makes below.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL VERSION RELEASED RELEASE_IMG

cat >"$work/opm" <<'E2'
#!/usr/bin/env bash
case "$1 ${2:-}" in
"alpha render-template") cat "${@:4:1}" ;;
render*) printf -- '---\nschema: olm.bundle\nimage: %s\nname: %s\n' "$4" "$(sed -n 's/^  name: \(sonde\.v.*\)/\1/p' "$2"/manifests/sonde.clusterserviceversion.yaml)" ;;
esac
E2
chmod +x "$work/opm"
git clone -q --no-hardlinks . "$clone"
git ls-files -z --cached --others --exclude-standard | xargs -0 -I{} sh -c '[ -e "$1" ] && printf "%s\0" "$1"' _ {} | tar -cf - --null -T - | tar -C "$clone" -xf -
git -C "$clone" -c user.name=test -c user.email=test@example.com add -A
commit() { git -C "$clone" -c user.name=test -c user.email=test@example.com commit -q --allow-empty -am "$1"; }
commit "The tree under test"
read -r current _ <VERSION
git -C "$clone" tag -f "v$current" >/dev/null
tagged=$(git -C "$clone" rev-parse HEAD)
next=${current%%.*}.$(($(cut -d. -f2 <<<"$current") + 1)).0
release() { OPM=$work/opm make -C "$clone" --no-print-directory release "$@" >"$work/out" 2>&1; }

# refused WHAT MESSAGE ARGUMENT...: the release fails with the message and changes nothing.
refused() {
	local what=$1 message=$2 before after
	shift 2
	before=$(git -C "$clone" status --porcelain)
	if release "$@"; then wrong "$what: was accepted"; fi
	grep -qF -- "$message" "$work/out" || wrong "$what: no \"$message\" in: $(cat "$work/out")"
	after=$(git -C "$clone" status --porcelain)
	[ "$before" = "$after" ] || wrong "$what: changed the tree: $after"
}
refused "no version" "which version?"
refused "a version with a v" "is not a version like" VERSION=v9.0.0
refused "half a version" "is not a version like" VERSION=9.0
refused "the same version" "is not above $current" VERSION="$current"
refused "an older version" "is not above $current" VERSION=0.0.9
touch "$clone/left-over"
refused "a changed tree" "the tree has changes" VERSION="$next"
rm "$clone/left-over"
git -C "$clone" tag -d "v$current" >/dev/null
refused "no tag of the last version" "there is no tag v$current" VERSION="$next"
git -C "$clone" -c user.name=test -c user.email=test@example.com tag -a -m "An annotated one" "v$current" "$tagged"
mkdir -p "$clone/test/olm/fixtures/$current" && touch "$clone/test/olm/fixtures/$current/COMMIT"
git -C "$clone" add -A && commit "Frozen before"
refused "a version frozen before" "was frozen before" VERSION="$next"
git -C "$clone" reset -q --hard HEAD^
sed -i 's/^## Unreleased$/## Later/' "$clone/CHANGELOG.md" && commit "No section"
refused "no section Unreleased" "has no section" VERSION="$next"
git -C "$clone" reset -q --hard HEAD^
sed -i 's/Networking, Monitoring/Networking/' "$clone/config/manifests/bases/sonde.clusterserviceversion.yaml" && commit "Stale"
if release VERSION="$next"; then wrong "a stale bundle: was accepted"; fi
grep -q "is stale" "$work/out" || wrong "a stale bundle: $(cat "$work/out")"
git -C "$clone" reset -q --hard HEAD^

# Changes after the tag, also in the bundle, are not part of the published version.
sed -i 's/^## Unreleased$/&\n\n- A change to be released./' "$clone/CHANGELOG.md"
sed -i 's/Networking, Monitoring/Networking/' "$clone/config/manifests/bases/sonde.clusterserviceversion.yaml"
make -C "$clone" --no-print-directory bundle >"$work/out" 2>&1 || wrong "make bundle: $(cat "$work/out")"
git -C "$clone" diff --quiet -- bundle && wrong "the change after the tag is not in the bundle: the test shows nothing"
commit "A change"
release VERSION="$next" || wrong "release: $(cat "$work/out")"
day=$(cut -d' ' -f2 "$clone/VERSION")
[ "$(cut -d' ' -f1 "$clone/VERSION")" = "$next" ] || wrong "VERSION holds $(cat "$clone/VERSION")"
[ "$(cat "$clone/test/olm/fixtures/$current/COMMIT")" = "$tagged" ] || wrong "the frozen bundle names another commit"
git -C "$clone" show "$tagged:bundle/manifests/sonde.clusterserviceversion.yaml" | diff -q - "$clone/test/olm/fixtures/$current/manifests/sonde.clusterserviceversion.yaml" >/dev/null || wrong "the frozen bundle differs from the tag's"
diff <(git -C "$clone" ls-tree -r --name-only "$tagged:bundle" | sort) <(cd "$clone/test/olm/fixtures/$current" && find . -type f ! -name COMMIT | sed 's#^\./##' | sort) >&2 || wrong "the frozen bundle has other files"
grep -q "^  name: sonde.v$next$" "$clone/bundle/manifests/sonde.clusterserviceversion.yaml" || wrong "the bundle is not of $next"
grep -qF "  - {name: sonde.v$next, replaces: sonde.v$current}" "$clone/catalog/template.yaml" || wrong "the upgrade graph has no edge from $current"
diff <(git -C "$clone" show "$tagged:catalog/sonde/catalog.yaml" | sed -n 's/^image: .*-bundle:v/v/p'; echo "v$next") <(sed -n 's/^image: .*-bundle:v/v/p' "$clone/catalog/sonde/catalog.yaml") >&2 || wrong "the catalog has other bundles"
diff <(printf '## Unreleased\n\n## %s (%s)\n\n- A change to be released.\n' "$next" "$day") <(sed -n '/^## Unreleased/,/^- A change/p' "$clone/CHANGELOG.md") >&2 || wrong "the changelog"
grep -q "git tag v$next" "$work/out" && grep -q "make catalog-build" "$work/out" || wrong "it does not print the remaining steps"

# As in make verify, nothing may be stale after the commit.
git -C "$clone" add -A && commit "Release $next"
make -C "$clone" --no-print-directory bundle >"$work/out" 2>&1 || wrong "make bundle: $(cat "$work/out")"
stale=$(git -C "$clone" status --porcelain)
[ -z "$stale" ] || wrong "stale after the release: $stale"
[ "$failed" -ne 0 ] || echo "ok   release: $current to $next in a clone"
exit "$failed"
