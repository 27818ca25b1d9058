#!/usr/bin/env bash
# build.sh DIR [NAME...]: puts the named parts of OLM and its tools into DIR, or all of them: programs, and the CRDs of
# OLM v0 and v1. A part is stored under a hash of its module and the Go version, and is built only if it is not stored yet.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?name the directory}/store"
dir=$(cd "$1" && pwd)
of=github.com/operator-framework

# part NAME: the function that makes it, its module below hack/, and the arguments.
part() {
	case "$1" in
	operator-sdk) echo program sdk $of/operator-sdk/cmd/operator-sdk ;;
	scorecard-test) echo program sdk $of/operator-sdk/images/scorecard-test ;;
	crdify) echo program crdify sigs.k8s.io/crdify ;;
	opm) echo program olm $of/operator-registry/cmd/opm ;;
	olm | catalog | copy-content) echo program olm "$of/operator-lifecycle-manager/cmd/$1" ;;
	grpc_health_probe) echo program olm github.com/grpc-ecosystem/grpc-health-probe ;;
	cpb) echo program olm $of/operator-lifecycle-manager/util/cpb ;;
	crds-v0) echo crds olm $of/api crds ;;
	operator-controller | catalogd) echo program olmv1 "$of/operator-controller/cmd/$1" ;;
	crds-v1) echo crds olmv1 $of/operator-controller config/base/{catalogd,operator-controller}/crd/bases ;;
	*)
		echo "build.sh: there is no part $1" >&2
		return 2
		;;
	esac
}
program() { CGO_ENABLED=0 go build -buildvcs=false -trimpath -tags containers_image_openpgp -ldflags '-s -w' -o "$1" "$2"; }
crds() {
	local to=$1 module=$2 from folder
	shift 2
	go mod download "$module"
	from=$(go list -m -f '{{.Dir}}' "$module")
	mkdir "$to"
	for folder; do cp --no-preserve=mode "$from/$folder"/*.yaml "$to/"; done
}

names=("${@:2}")
[ ${#names[@]} -gt 0 ] || names=(opm grpc_health_probe olm catalog cpb copy-content crds-v0 operator-controller catalogd crds-v1)
for name in "${names[@]}"; do
	how=$(part "$name")
	read -r make module what <<<"$how"
	key=$(cd "$here/../$module" && cat go.mod go.sum <(echo "$how") <(go env GOVERSION GOARCH) | sha256sum | cut -c1-16)
	at=$dir/store/$name-$key
	if [ ! -e "$at" ]; then
		echo "building $name"
		rm -rf "$at.new"
		# shellcheck disable=SC2086 # $what holds several words
		(cd "$here/../$module" && "$make" "$at.new" $what)
		mv -T "$at.new" "$at"
	fi
	ln -sfnT "$at" "$dir/$name"
done
