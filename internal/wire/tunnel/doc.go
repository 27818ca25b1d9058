// Package tunnel is the protocol between the manager, Stowaway, the carriers and the developer's machine.
//
// Every connection is TLS 1.3 between two keys that know each other, and carries HTTP/2. Stowaway is the middle:
//
//	carrier ── TLS, HTTP/2 client ──> Stowaway <── TLS, HTTP/2 client ── manager
//	                                     │
//	                                     └── HTTP/2 client, TLS server ──> developer's machine
//
// The developer's machine opens its connection through the API server (services/proxy, an HTTP upgrade), so it is the client of
// the TLS connection. It is the server of HTTP/2, because streams begin in the cluster.
//
// A stream is a POST. The response has the status 200 when the destination is connected. The request's body has the bytes of one
// direction; the response's body has those of the other in frames (Stream), because an HTTP/2 server cannot end its direction
// before the other.
package tunnel

// Version of the protocol. A Stowaway speaks this version and the one before it.
const Version = 1

// Names and ports of Stowaway in the operator's namespace.
const (
	// Name of the Deployment, the Service and the Secret.
	Name = "sonde-stowaway"
	// ClientPort is for connections of developers' machines, which come from the API server.
	ClientPort = 8443
	// PeerPort is for carriers and the manager.
	PeerPort = 8444
	// ClientPortName is the name of ClientPort in the Service.
	ClientPortName = "client"
	// PeerPortName is the name of PeerPort in the Service.
	PeerPortName = "peer"
)

// Paths. PathClient is requested with an upgrade to Protocol.
const (
	PathClient = "/v1/client"
	// PathOpen + a route's ID opens a stream to a route's client. Carriers ask Stowaway, and Stowaway asks the client.
	PathOpen = "/v1/open/"
	// PathRoutes answers a carrier with one Table per line, now and after each change, until the carrier goes.
	PathRoutes = "/v1/routes"
	// PathReport takes one Report per line: from a carrier until it goes, and from Stowaway to a client those of one second.
	PathReport = "/v1/report"
	// PathState takes a State from the manager.
	PathState = "/v1/state"
	// PathStatus answers the manager with a Status.
	PathStatus = "/v1/status"
	// PathHealth answers the kubelet's probe on ClientPort: with 200, or with 503 if Stowaway's state stays locked.
	PathHealth = "/healthz"
)

// Protocol is the value of the Upgrade header.
const Protocol = "sonde-tunnel"

// HeaderLive of a request for PathRoutes says that the carrier knows Table.Live. An older Stowaway ignores it.
const HeaderLive = "Sonde-Live"

// HeaderReason of a refusal says why, for people. Stowaway's refusals of carriers have no body: HTTP/2's flow control would let a carrier
// keep each one, and its request, for ever.
const HeaderReason = "Sonde-Reason"

// Headers of a stream, for people: the Pod, the address of the peer, and its destination in the cluster.
const (
	HeaderPod         = "Sonde-Pod"
	HeaderPeer        = "Sonde-Peer"
	HeaderDestination = "Sonde-Destination"
)
