#!/usr/bin/env bash
# previous-image.sh VERSION: prints the path of the image of an earlier version. It is built once, from the commit that the
# frozen bundle names. CLUSTER is the built hack/cluster, which writes the image.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${1:?name the version}" "${CLUSTER:?the built hack/cluster}"
commit=$(cat "test/olm/fixtures/$1/COMMIT")
images=${XDG_CACHE_HOME:-$HOME/.cache}/sonde/images
image=$images/$commit.tar
if [ ! -e "$image" ]; then
	git cat-file -e "$commit^{commit}" 2>/dev/null || {
		echo "commit $commit, which was version $1, is not in this clone: fetch the whole history (git fetch --unshallow)" >&2
		exit 1
	}
	tree=$(mktemp -d)
	trap 'rm -rf "$tree"' EXIT
	git archive "$commit" | tar -x -C "$tree"
	echo "building the image of $1" >&2
	make --no-print-directory -C "$tree" build >&2
	mkdir -p "$images"
	bin=$tree/bin/linux_$(go env GOARCH)
	"$CLUSTER" image -o "$image" --name "sonde.local/sonde:$1" --user 65532:65532 --entrypoint /manager "manager=$bin/manager" "agent=$bin/agent"
fi
echo "$image"
