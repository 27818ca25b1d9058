#!/bin/bash
# Builds libpcap.wasm: the filter compiler of Debian's libpcap for WebAssembly,
# without any import. The same inputs give the same bytes; a copy is kept in the
# user's cache directory under the hash of all inputs, so that a second build
# only copies.
#
# Needs: clang-19 lld-19 libclang-rt-19-dev-wasm32 wasi-libc flex bison patch, and
# apt-get with a Debian source to fetch libpcap from. patches/ says what differs from
# Debian's source, and why.
set -euo pipefail
export LC_ALL=C

readonly VERSION=1.10.3-1
readonly TARBALL=libpcap_1.10.3.orig.tar.gz
readonly SHA256=2a8885c403516cf7b0933ed4b14d6caa30e02052489ebd414dc75ac52e7559e6
readonly SOURCES=(gencode.c optimize.c nametoaddr.c)
readonly PACKAGES=(clang-19 lld-19 libclang-rt-19-dev-wasm32 wasi-libc flex bison patch)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sonde/pcapfilter
out=$here/libpcap.wasm
work=

fail() {
	echo "pcapfilter: $*" >&2
	exit 1
}

check_tools() {
	local missing=() p
	for p in "${PACKAGES[@]}"; do
		dpkg-query -W -f='${db:Status-Abbrev}' "$p" 2>/dev/null | grep -q ^ii || missing+=("$p")
	done
	[ ${#missing[@]} -eq 0 ] || fail "missing Debian packages: install ${missing[*]}"
}

# The hash of everything that can change the result.
input_key() {
	{
		dpkg-query -W -f='${Package} ${Version}\n' "${PACKAGES[@]}"
		cd "$here"
		find . -type f ! -name libpcap.wasm | sort | xargs sha256sum
	} | sha256sum | cut -d' ' -f1
}

verify() {
	echo "$SHA256  $1" | sha256sum --check --status
}

# Reads the machine's own package sources as source-package sources, in a
# directory of ours: the machine's configuration and lists stay as they are.
# From /etc/apt only entries that name a "main" component are taken.
fetch_source() {
	local tarball=$cache/$TARBALL f apt
	verify "$tarball" 2>/dev/null && return
	mkdir -p "$work"/apt/{parts,lists/partial,cache/archives/partial}
	for f in /etc/apt/sources.list.d/*.sources; do
		[ -e "$f" ] || continue
		grep -q '^Components:.*\bmain\b' "$f" || continue
		sed 's/^Types:.*/Types: deb-src/' "$f" >"$work/apt/parts/${f##*/}"
	done
	for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		[ -e "$f" ] || continue
		sed -n '/[[:space:]]main\b/s/^deb\([[:space:]]\)/deb-src\1/p' "$f" >"$work/apt/parts/source-${f##*/}"
	done
	apt=(apt-get -q -q
		-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/apt/parts"
		-o Dir::State::lists="$work/apt/lists" -o Dir::Cache="$work/apt/cache"
		-o APT::Sandbox::User=)
	"${apt[@]}" update || fail "apt-get update failed: check the machine's package sources"
	# A later revision of the package has the same upstream archive; the hash decides.
	(cd "$work" && { "${apt[@]}" source --download-only --tar-only "libpcap=$VERSION" ||
		"${apt[@]}" source --download-only --tar-only libpcap; }) ||
		fail "source package libpcap not found in the machine's package sources"
	[ -e "$work/$TARBALL" ] || fail "the machine's package sources have another libpcap than $VERSION: build on Debian 12"
	verify "$work/$TARBALL" || fail "$TARBALL does not have the pinned sha256 $SHA256"
	mkdir -p "$cache"
	cp "$work/$TARBALL" "$tarball.$$"
	mv "$tarball.$$" "$tarball"
}

generate_parser() {
	sed 's/@REENTRANT_PARSER@/%define api.pure/' grammar.y.in >grammar.y
	bison -Wno-deprecated -p pcap_ -o grammar.c -d grammar.y
	flex -P pcap_ --header-file=scanner.h --nounput -o scanner.c scanner.l
}

# -fsanitize-coverage makes the code count its steps (see shim.c), link-time optimization
# makes that cheap, and -Oz keeps small what the host has to translate to machine code.
# --stack-first puts the C stack at address 0, so that overflowing it traps
# instead of running into data. -Dlinux makes libpcap generate Linux' metadata loads.
compile() {
	local src=$work/libpcap-${VERSION%-*}
	tar -xzf "$cache/$TARBALL" -C "$work"
	cp "$here/shim.c" "$here/protocols.h" "$src"
	cd "$src"
	cat "$here"/patches/*.patch | patch -s -p1
	generate_parser
	clang-19 --target=wasm32-wasi -isystem "$here/include" -isystem /usr/include/wasm32-wasi \
		-I. -DHAVE_CONFIG_H -Dlinux=1 -D_WASI_EMULATED_SIGNAL -Wall -Wno-unused-function -Wno-unused-but-set-variable \
		-Oz -flto -fsanitize-coverage=edge,trace-pc -g0 -fno-ident -ffile-prefix-map="$src"=. \
		-mexec-model=reactor -L/usr/lib/wasm32-wasi \
		-Wl,--gc-sections,--strip-all,--stack-first,-z,stack-size=1048576 \
		-o "$work/libpcap.wasm" shim.c grammar.c scanner.c "${SOURCES[@]}"
}

main() {
	check_tools
	local key built
	key=$(input_key)
	built=$cache/$key.wasm
	if [ ! -s "$built" ]; then
		work=$(mktemp -d)
		trap 'rm -rf "$work"' EXIT
		fetch_source
		(compile)
		cp "$work/libpcap.wasm" "$built.$$"
		mv "$built.$$" "$built"
	fi
	cmp -s "$built" "$out" || cp "$built" "$out"
	sha256sum "$out" | sed "s|$here/||"
}

main "$@"
