package stowaway

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
)

// A new connection replaces the oldest: the other side may have given that one up without a word. A carrier has one at a time: each holds
// memory. Two managers may be connected while one replaces the other.
const (
	maxOfCarrier = 1
	maxOfManager = 4
)

// standingRequests of a carrier: its Tables and its reports.
const standingRequests = 2

// connections of one key, the oldest first. The server's lock guards them.
type connections struct{ open []*connection }

// connection of a peer.
type connection struct {
	end context.CancelFunc
	// requests whose answers the other side has not taken, and line, the bytes of a report that is not whole.
	requests, line atomic.Int64
}

// opened returns the requests that are for streams, and those that are refused, but whose answers the carrier has not taken.
func (c *connection) opened() int { return max(0, int(c.requests.Load())-standingRequests) }

// answered counts a request until the other side has taken the end of its answer. HTTP/2's server sends that when the handler has returned, and
// keeps the request so long.
func (c *connection) answered(w http.ResponseWriter) {
	server, ok := w.(interface{ CloseNotify() <-chan bool }) // it notifies of the end of the request's stream
	if !ok {
		c.requests.Add(-1)
		return
	}
	ended := server.CloseNotify()
	go func() {
		<-ended
		c.requests.Add(-1)
	}()
}

// holds returns about the bytes that the connection takes.
func (c *connection) holds() int {
	return connectionHolds + c.opened()*streamHolds + int(c.line.Load())
}

func (c *connections) add(n *connection, most int) {
	if len(c.open) == most {
		c.open[0].end()
		c.open = slices.Delete(c.open, 0, 1)
	}
	c.open = append(c.open, n)
}

// remove reports whether it was the last one.
func (c *connections) remove(old *connection) bool {
	c.open = slices.DeleteFunc(c.open, func(o *connection) bool { return o == old })
	return len(c.open) == 0
}

func (c *connections) closeAll() {
	for _, o := range c.open {
		o.end()
	}
	c.open = nil
}

func (c *connections) any() bool { return len(c.open) > 0 }
