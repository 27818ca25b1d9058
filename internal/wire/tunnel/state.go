package tunnel

import (
	"time"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
)

// Bounds of a State. They keep it, and the Status that answers it, below the 8 MiB that each side reads. A Status has of each Pod only
// ports and counters of the Pod's routes, so that no carrier makes it larger.
const (
	MaxRoutes   = 1000
	MaxCarriers = 2000
	// MaxRoutedPods counts a Pod once for each route that has it.
	MaxRoutedPods = 20_000
	// MaxMatch is the size of a route's match in bytes of JSON.
	MaxMatch = 4 << 10
	// MaxStatus is the size of a Status in bytes of JSON.
	MaxStatus = 8 << 20
)

// State is all that the manager tells Stowaway. A new State replaces the one before.
type State struct {
	// Version of the protocol.
	Version int `json:"version"`
	// Generation differs between States. Status repeats it.
	Generation string    `json:"generation"`
	Routes     []Route   `json:"routes"`
	Carriers   []Carrier `json:"carriers"`
}

// Route is one InterceptRequest.
type Route struct {
	// ID is the UID of the InterceptRequest; Name is "namespace/name", for people.
	ID   string `json:"id"`
	Name string `json:"name"`
	// Created orders routes: of two that match, the older one gets the request.
	Created time.Time `json:"created"`
	// ClientKey of the developer's machine.
	ClientKey PublicKey `json:"clientKey"`
	// Port of the target's Pods.
	Port uint16 `json:"port"`
	// Match selects requests; nil means all connections.
	Match *httpmatch.Match `json:"match,omitempty"`
	// ProbesToClient sends the kubelet's TCP probes to the client, too.
	ProbesToClient bool `json:"probesToClient,omitempty"`
	// GracePeriod is how long connections go through the carrier to the app after the client was lost.
	GracePeriod time.Duration `json:"gracePeriod"`
	// Pods of the target, by UID.
	Pods []string `json:"pods"`
}

// Carrier is a carrier that may connect.
type Carrier struct {
	// Pod is the UID of the target's Pod, and Name is its "namespace/name".
	Pod  string    `json:"pod"`
	Name string    `json:"name"`
	Key  PublicKey `json:"key"`
}

// Table has the routes of one carrier.
type Table struct {
	Version int          `json:"version"`
	Routes  []TableRoute `json:"routes"`
	// Live is set if the routes are those of the Table before. It has the IDs of those that are live now. Only a carrier that sends
	// HeaderLive gets such a Table: a match may have 4 KiB, and clients connect as often as they like.
	Live *[]string `json:"live,omitempty"`
}

// TableRoute is a route as a carrier knows it.
type TableRoute struct {
	ID             string           `json:"id"`
	Created        time.Time        `json:"created"`
	Port           uint16           `json:"port"`
	Match          *httpmatch.Match `json:"match,omitempty"`
	ProbesToClient bool             `json:"probesToClient,omitempty"`
	GracePeriod    time.Duration    `json:"gracePeriod"`
	// Live reports that the client is connected. Without it the app answers. It is the last field: Stowaway writes what is before it
	// from memory that all carriers share.
	Live bool `json:"live"`
}

// Counters of a route on one Pod, since its carrier started.
type Counters struct {
	// Connections accepted on the route's port. Matched and Passed are requests, or connections where HTTP is not read: those that
	// went to the client, and those that went to the app. Failed were to go to the client, which did not take them.
	Connections uint64 `json:"connections"`
	Matched     uint64 `json:"matched"`
	Passed      uint64 `json:"passed"`
	Failed      uint64 `json:"failed"`
	// BytesToClient and BytesFromClient of streams.
	BytesToClient   uint64 `json:"bytesToClient"`
	BytesFromClient uint64 `json:"bytesFromClient"`
	// Overlaps are requests that another, older route took, although this one matched, too.
	Overlaps uint64 `json:"overlaps"`
}

// Report of a carrier.
type Report struct {
	// Pod is the UID of the target's Pod.
	Pod string `json:"pod"`
	// Routes has the counters of each route by ID.
	Routes map[string]Counters `json:"routes,omitempty"`
	// Requests of clients that ended since the last report, the newest last, at most MaxRequests. Others are left out.
	Requests []Request `json:"requests,omitempty"`
	// Steered has the ports whose connections the carrier gets now.
	Steered []uint16 `json:"steered,omitempty"`
	// Unserved has the ports of live routes on which the app does not listen, so that they are not steered. Carriers of older versions
	// leave it out.
	Unserved []uint16 `json:"unserved,omitempty"`
}

// MaxRequests of one Report.
const MaxRequests = 32

// Request is one HTTP request, for people.
type Request struct {
	Time   time.Time `json:"time"`
	Pod    string    `json:"pod"`
	Route  string    `json:"route,omitempty"`
	Port   uint16    `json:"port"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	// Status of the response; 0 if there was none.
	Status int `json:"status"`
	// Client reports that the client answered, and not the app.
	Client bool `json:"client"`
	// Number counts the requests of the route to its client since the carrier started, from 1, so that a gap shows those that were left out.
	// It is 0 if the carrier or Stowaway is older.
	Number uint64 `json:"number,omitempty"`
}
