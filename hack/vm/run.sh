#!/usr/bin/env bash
# run.sh [--cgroups v1|v2] [--add FILE]... [--env NAME=VALUE]... KERNEL PROGRAM [ARGS...]: runs a static program, such as
# one of `go test -c`, as root in a virtual machine with Debian's kernel 6.1 or 6.12, and ends with its exit status. Each
# FILE is next to the program in /vm. Kernels are downloaded into the cache; nothing is installed. VM_DRY_RUN=1 only
# prepares the virtual machine.
set -euo pipefail
usage() {
	echo "usage: hack/vm/run.sh [--cgroups v1|v2] [--add FILE]... [--env NAME=VALUE]... 6.1|6.12 PROGRAM [ARGS...]" >&2
	exit 2
}
# The tested versions. When Debian has removed one, the script uses the newest of the series and says so.
declare -A pinned=([6.1]=linux-image-6.1.0-56-cloud-amd64 [6.12]=linux-image-6.12.117+deb12-cloud-amd64)
# Kernel modules that the tests need, in any order.
modules=(af_packet veth sch_ingress cls_bpf cls_u32 dummy bridge tun fuse tcp_diag)
cgroups=v2
files=()
environment=()
while [ $# -gt 0 ]; do
	case "$1" in
	--cgroups) cgroups=${2:-} && shift 2 ;;
	--add) files+=("${2:-}") && shift 2 ;;
	--env) environment+=("${2:-}") && shift 2 ;;
	-*) usage ;;
	*) break ;;
	esac
done
series=${1:-}
[ $# -ge 2 ] && [ -n "${pinned[$series]:-}" ] && [[ $cgroups =~ ^v[12]$ ]] || usage
program=$2
shift 2
for program_or_file in "$program" "${files[@]}"; do
	[ -f "$program_or_file" ] || { echo "hack/vm: file $program_or_file does not exist" >&2; exit 2; }
done
for tool in qemu-system-x86_64 busybox apt-get dpkg-deb xz; do
	command -v $tool >/dev/null || { echo "hack/vm: $tool is missing: run \`make deps\`" >&2; exit 2; }
done
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sonde/vm
mkdir -p "$cache"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch PACKAGE unpacks a Debian package into the cache, once. The rename makes it appear complete or not at all.
fetch() {
	[ ! -d "$cache/$1" ] || return 0
	(cd "$work" && apt-get download -q "$1" >/dev/null 2>&1) || return 1
	dpkg-deb -x "$work"/"$1"_*.deb "$work/unpacked"
	mv -T "$work/unpacked" "$cache/$1" 2>/dev/null || [ -d "$cache/$1" ]
}
package=${pinned[$series]}
if ! fetch "$package"; then
	package=$(apt-cache search --names-only "^linux-image-${series//./\\.}\\.[0-9].*-cloud-amd64\$" | cut -d' ' -f1 | sort -V | tail -1)
	echo "hack/vm: ${pinned[$series]} cannot be downloaded, trying ${package:-nothing}; pin it in hack/vm/run.sh when the tests pass" >&2
	[ -n "$package" ] && fetch "$package" || { echo "hack/vm: found no kernel $series: check the network and run \`apt-get update\`" >&2; exit 2; }
fi
release=${package#linux-image-}

# module NAME copies a module after its dependencies and lists it for the guest. A built-in module has no file.
module() {
	local file depends
	[ ! -e "$work/root/modules/$1.ko" ] || return 0
	file=$(find "$cache/$package/lib/modules/$release" \( -name "$1.ko*" -o -name "${1//_/-}.ko*" \) | head -1)
	[ -n "$file" ] || return 0
	case "$file" in
	*.xz) xz -dc "$file" >"$work/root/modules/$1.ko" ;;
	*) cp "$file" "$work/root/modules/$1.ko" ;;
	esac
	depends=$(tr '\0' '\n' <"$work/root/modules/$1.ko" | sed -n 's/^depends=//p' | head -1)
	for dependency in ${depends//,/ }; do module "${dependency//-/_}"; done
	echo "$1" >>"$work/root/modules/order"
}
mkdir -p "$work"/root/{bin,dev,proc,sys,tmp,run,etc,vm,modules}
touch "$work/root/modules/order"
for m in "${modules[@]}"; do module "$m"; done
cp "$(command -v busybox)" "$work/root/bin/busybox"
cp "$program" "${files[@]}" "$work/root/vm/"
printf 'root:x:0:0::/:/bin/sh\n' >"$work/root/etc/passwd"
printf '127.0.0.1 localhost\n' >"$work/root/etc/hosts"
printf '%q ' env "${environment[@]}" "/vm/$(basename "$program")" "$@" >"$work/root/vm/command"
cp "$(dirname "$0")/init.sh" "$work/root/init"
chmod +x "$work/root/init"
(cd "$work/root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$work/initramfs"
[ -z "${VM_DRY_RUN:-}" ] || exit 0

# Some machines have /dev/kvm but a processor without virtualisation, where no guest would ever start. There qemu emulates
# both processors, many times slower. It runs them on one thread: otherwise one may execute code that the other has just
# patched, and a kernel that enables a tracepoint panics on int3.
accelerator=tcg,thread=single
if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then accelerator=kvm; fi
# Every host supports qemu64; kvm cannot pass through the host's own processor everywhere.
timeout --foreground "${VM_TIMEOUT:-600}" qemu-system-x86_64 -accel "$accelerator" -cpu qemu64 -m 1024 -smp 2 -nodefaults -no-reboot \
	-display none -serial stdio -kernel "$cache/$package/boot/vmlinuz-$release" -initrd "$work/initramfs" \
	-append "console=ttyS0 quiet panic=-1 loglevel=3 vm_cgroups=$cgroups" </dev/null 2>"$work/qemu" |
	sed -u 's/\r//g' | tee "$work/console" | sed -u '/^vm: exit status /d' || true
status=$(sed -n 's/^vm: exit status \([0-9]*\)$/\1/p' "$work/console" | tail -1)
if [ -z "$status" ]; then
	echo "hack/vm: the machine stopped without the program's exit status (see the kernel's panic above; VM_TIMEOUT is ${VM_TIMEOUT:-600} s)" >&2
	cat "$work/qemu" >&2
	exit 2
fi
exit "$status"
