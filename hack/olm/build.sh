#!/usr/bin/env bash
# build.sh DIR [NAME...]: puts the named parts of OLM and its tools into DIR, or all of them: programs, and the CRDs of
# OLM v0 and v1. A part is stored under a hash of its module and the Go version, and built only where it is not yet stored.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?where to}/store"
dir=$(cd "$1" && pwd)
upstream=github.com/operator-framework

# part NAME: how it is made, its module below hack/, and what in upstream.
part() {
	case "$1" in
	operator-sdk) echo program sdk operator-sdk/cmd/operator-sdk ;;
	scorecard-test) echo program sdk operator-sdk/images/scorecard-test ;;
	opm) echo program olm operator-registry/cmd/opm ;;
	olm | catalog) echo program olm "operator-lifecycle-manager/cmd/$1" ;;
	cpb) echo program olm operator-lifecycle-manager/util/cpb ;;
	crds-v0) echo crds olm api crds ;;
	operator-controller | catalogd) echo program olmv1 "operator-controller/cmd/$1" ;;
	crds-v1) echo crds olmv1 operator-controller config/base/{catalogd,operator-controller}/crd/bases ;;
	*)
		echo "build.sh: no part is called $1" >&2
		return 2
		;;
	esac
}
program() { CGO_ENABLED=0 go build -buildvcs=false -trimpath -tags containers_image_openpgp -ldflags '-s -w' -o "$1" "$upstream/$2"; }
crds() {
	local to=$1 module=$upstream/$2 from folder
	shift 2
	go mod download "$module"
	from=$(go list -m -f '{{.Dir}}' "$module")
	mkdir "$to"
	for folder; do cp --no-preserve=mode "$from/$folder"/*.yaml "$to/"; done
}

names=("${@:2}")
[ ${#names[@]} -gt 0 ] || names=(opm olm catalog cpb crds-v0 operator-controller catalogd crds-v1)
for name in "${names[@]}"; do
	how=$(part "$name")
	read -r make module what <<<"$how"
	key=$(cd "$here/../$module" && cat go.mod go.sum <(echo "$how") <(go env GOVERSION GOARCH) | sha256sum | cut -c1-16)
	at=$dir/store/$name-$key
	if [ ! -e "$at" ]; then
		echo "building $name"
		rm -rf "$at.new"
		# shellcheck disable=SC2086 # $what is words
		(cd "$here/../$module" && "$make" "$at.new" $what)
		mv -T "$at.new" "$at"
	fi
	ln -sfnT "$at" "$dir/$name"
done
