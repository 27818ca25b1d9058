package target

import "strings"

// sandboxes are the beginnings of words in the names of runtime handlers whose containers do not use the host kernel's
// network namespaces. The names are from the install docs of the runtimes.
var sandboxes = []string{
	"kata", "gvisor", "runsc", "firecracker", "dragonball", "qemu", "clh", "stratovirt", "nabla", "urunc", "quark",
	"peerpod", "kubevirt", "wasm", "spin", "slight", "lunatic", "wws",
}

// Sandboxed reports whether a RuntimeClass with this name and handler runs Pods whose packets a probe on the node cannot
// see. The empty file of such a capture would look as if the Pod had no traffic.
func Sandboxed(class, handler string) bool {
	words := strings.FieldsFunc(strings.ToLower(class+" "+handler), func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
	for _, word := range words {
		for _, s := range sandboxes {
			if strings.HasPrefix(word, s) {
				return true
			}
		}
	}
	return false
}
