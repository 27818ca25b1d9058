package stowaway

import (
	"context"
	"slices"
)

// maxOwn is how many connections one carrier, or the manager, may have. A new one replaces the oldest: the other side may have
// given that one up without a word.
const maxOwn = 4

// connections of one key, the oldest first. The server's lock guards them.
type connections struct{ open []*connection }

// connection of a peer.
type connection struct{ end context.CancelFunc }

func (c *connections) add(n *connection) {
	if len(c.open) == maxOwn {
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
