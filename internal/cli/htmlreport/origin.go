package htmlreport

import (
	"fmt"
	"net/netip"
	"strings"
)

// origin is what the comments of Sonde's files say about the capture.
type origin struct {
	requester, capture, target, filter string
}

// newOrigin reads the comments of a section. The comments of several Pods are alike, but for the Pod.
func newOrigin(comments []string) origin {
	var o origin
	for _, comment := range comments {
		for line := range strings.Lines(comment) {
			name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
			if ok {
				o.set(name, value)
			}
		}
	}
	return o
}

func (o *origin) set(name, value string) {
	first, _, _ := strings.Cut(value, ", ")
	switch {
	case name == "requester" && o.requester == "":
		o.requester = value
	case name == "capture" && o.capture == "":
		o.capture = first
	case name == "target" && o.target == "":
		o.target = first
	case name == "filter" && o.filter == "":
		o.filter = value
	}
}

// endpoint returns the Pod or else the address, with the port if there is one.
func endpoint(a netip.AddrPort, pod string) string {
	switch {
	case !a.IsValid():
		return none
	case pod != "" && a.Port() != 0:
		return fmt.Sprintf("%s:%d", pod, a.Port())
	case pod != "":
		return pod
	case a.Port() == 0:
		return a.Addr().String()
	}
	return a.String()
}
