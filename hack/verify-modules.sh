#!/usr/bin/env bash
# verify-modules.sh: fails if a module's go.mod or go.sum does not match its code, or if it replaces
# a dependency with a local path.
set -euo pipefail
cd "$(dirname "$0")/.."
for dir in . cmd/releaser hack/cluster hack/cluster/binaries/provisioner hack/bundle hack/image hack/otelcol hack/registry test/bench/wireguard; do
	(cd "$dir" && go mod verify >/dev/null && go mod tidy -diff)
done
if grep -nE '=> *(\.\.?/|/)' go.mod hack/*/go.mod test/bench/*/go.mod; then
	echo "a module is replaced with a local path: publish it, or move it into this module" >&2
	exit 1
fi
