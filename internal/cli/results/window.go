package results

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// liveAhead is how many bytes the growing files of all Pods may be ahead of their readers: 60 MB/s at a round trip of 0.1 s. A slow reader
	// has so much in its memory. The rest stays in the files. By default, HTTP/2 allows 4 MiB for each file.
	liveAhead   = 6 << 20
	mostWindow  = 4 << 20
	leastWindow = 256 << 10
	// assumedPods is used while nobody knows the number.
	assumedPods = 10
)

// liveWindow returns how many bytes a growing file may be ahead of its reader.
func liveWindow(pods int) int {
	if pods <= 0 {
		pods = assumedPods
	}
	return min(max(liveAhead/pods, leastWindow), mostWindow)
}

// withWindow returns a transport with the same settings and connections of its own, on which the server may send so many bytes of a response
// before its reader takes them. A transport of an unknown kind is returned as it is.
func withWindow(rt http.RoundTripper, bytes int) http.RoundTripper {
	inner := rt
	for {
		wrapper, ok := inner.(utilnet.RoundTripperWrapper)
		if !ok {
			break
		}
		inner = wrapper.WrappedRoundTripper()
	}
	t, ok := inner.(*http.Transport)
	if !ok {
		return rt
	}
	t = t.Clone()
	t.TLSNextProto = nil // it leads to the other transport's connections
	t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: bytes}
	return utilnet.SetTransportDefaults(t)
}
