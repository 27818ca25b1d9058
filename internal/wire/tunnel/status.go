package tunnel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Status is what Stowaway tells the manager.
type Status struct {
	Version    int                      `json:"version"`
	Generation string                   `json:"generation"`
	Routes     map[string]RouteStatus   `json:"routes"`
	Carriers   map[string]CarrierStatus `json:"carriers"`
}

// RouteStatus is the client's side of a route.
type RouteStatus struct {
	Connected bool `json:"connected"`
	// Heartbeat is when the client last answered; zero if it never connected.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
}

// CarrierStatus is a carrier's side, by the UID of its Pod.
type CarrierStatus struct {
	Connected bool                `json:"connected"`
	Steered   []uint16            `json:"steered,omitempty"`
	Unserved  []uint16            `json:"unserved,omitempty"`
	Routes    map[string]Counters `json:"routes,omitempty"`
}

// What the parts of the largest Status have of colons in JSON: one for each name, and up to three in a time.
const (
	colonsOfStatus   = 4
	colonsOfRoute    = 1 + 2 + 3
	colonsOfCarrier  = 1 + 4
	colonsOfCounters = 1 + 7
	maxStatusColons  = colonsOfStatus + colonsOfRoute*MaxRoutes + colonsOfCarrier*MaxCarriers + colonsOfCounters*MaxRoutedPods
)

// ParseStatus reads a Status. A Stowaway that was taken over could send one of MaxStatus bytes whose maps take some hundred MiB: each entry
// has a few bytes of JSON. So it first counts the colons, of which each entry has one.
func ParseStatus(b []byte) (*Status, error) {
	if n := bytes.Count(b, []byte{':'}); n > maxStatusColons {
		return nil, fmt.Errorf("parse Stowaway's status: it has %d values, and may have %d", n, maxStatusColons)
	}
	s := &Status{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("parse Stowaway's status: %s", text.OneLine(err.Error(), maxReason)) // it has numbers as they were sent
	}
	return s, nil
}
