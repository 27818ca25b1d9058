#!/usr/bin/env bash
# verify-modules.sh: fails where a module's go.mod or go.sum is not what its code needs, or where a
# module replaces a dependency by a path of some machine.
set -euo pipefail
cd "$(dirname "$0")/.."
for dir in . hack/cluster hack/bundle hack/image; do
	(cd "$dir" && go mod verify >/dev/null && go mod tidy -diff)
done
if grep -nE '=> *(\.\.?/|/)' go.mod hack/*/go.mod; then
	echo "a module is replaced by a path: publish it or move it into this one" >&2
	exit 1
fi
