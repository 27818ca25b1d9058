#!/usr/bin/env bash
# plugin-archives.sh OS/ARCH...: builds the plugin for each platform into build/plugin/kubectl-sonde_OS_ARCH.tar.gz, with
# checksums.txt and krew's manifest sonde.yaml beside them. The same sources give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${VERSION:?run make plugin-archives}" "${RELEASED:?run make plugin-archives}" "${LDFLAGS:?run make plugin-archives}"
out=build/plugin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"
for platform in "$@"; do
	os=${platform%/*} arch=${platform#*/} program=kubectl-sonde
	[ "$os" != windows ] || program=kubectl-sonde.exe
	dir=$work/${os}_$arch
	mkdir "$dir"
	GOOS=$os GOARCH=$arch go build -ldflags "$LDFLAGS" -o "$dir/$program" ./cmd/kubectl-sonde
	install -m 0644 LICENSE "$dir/LICENSE"
	archive=kubectl-sonde_${os}_$arch.tar.gz
	tar -C "$dir" --sort=name --owner=0 --group=0 --numeric-owner --mtime="$RELEASED 00:00:00Z" -cf - LICENSE "$program" | gzip -n9 >"$out/$archive"
	echo "$out/$archive: $(($(stat -c %s "$out/$archive") / 1024)) KiB"
done
(cd "$out" && sha256sum -- *.tar.gz >checksums.txt)
{
	cat <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: sonde
spec:
  version: v$VERSION
  homepage: https://github.com/sonde-operator/sonde
  shortDescription: Capture the packets of every Pod of a workload
  description: |
    Captures the packets of every Pod of a workload by the operator Sonde, which must be installed in the cluster; follows
    the capture, and downloads and merges its files for Wireshark.
  platforms:
EOF
	while read -r sum archive; do
		IFS=_ read -r _ os arch <<<"${archive%.tar.gz}"
		program=kubectl-sonde
		[ "$os" != windows ] || program=kubectl-sonde.exe
		cat <<EOF
  - selector:
      matchLabels: {os: $os, arch: $arch}
    uri: https://github.com/sonde-operator/sonde/releases/download/v$VERSION/$archive
    sha256: $sum
    bin: $program
EOF
	done <"$out/checksums.txt"
} >"$out/sonde.yaml"
echo "$out/checksums.txt, $out/sonde.yaml (krew)"
