package target

import "strings"

// sandboxes are how the handlers of runtimes are called whose containers do not live in the host
// kernel's network namespaces: the start of a word of the name. From the runtimes' own install docs.
var sandboxes = []string{
	"kata", "gvisor", "runsc", "firecracker", "dragonball", "qemu", "clh", "stratovirt", "nabla", "urunc", "quark",
	"peerpod", "kubevirt", "wasm", "spin", "slight", "lunatic", "wws",
}

// Sandboxed reports whether a RuntimeClass, by its name and its handler, runs Pods where a probe on
// the node cannot see their packets. An empty capture would look like a Pod without traffic.
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
