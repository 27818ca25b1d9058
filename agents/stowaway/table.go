package stowaway

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// tableBuffer in bytes is what a carrier holds while it reads a Table.
const tableBuffer = 16 << 10

// table has the routes of one carrier. Nothing of it is copied: a whole Table may have some MiB, and there are thousands of carriers.
type table []tableEntry

type tableEntry struct {
	*route
	live bool
}

// tableSums are two hashes of a table: of its routes, and of their states, live or not.
type tableSums struct{ routes, live [sha256.Size]byte }

// sums never returns the zero value.
func (t table) sums() (s tableSums) {
	routes, live := sha256.New(), sha256.New()
	for _, e := range t {
		_, _ = routes.Write(e.sum[:])
		_, _ = live.Write(strconv.AppendBool(nil, e.live))
	}
	routes.Sum(s.routes[:0])
	live.Sum(s.live[:0])
	return s
}

// write writes a line with the whole Table, or only which routes are live.
func (t table) write(to io.Writer, onlyLive bool) error {
	if onlyLive {
		ids := []string{}
		for _, e := range t {
			if e.live {
				ids = append(ids, e.ID)
			}
		}
		return json.NewEncoder(to).Encode(tunnel.Table{Version: tunnel.Version, Live: &ids})
	}
	out := bufio.NewWriterSize(to, tableBuffer)
	_, _ = fmt.Fprintf(out, `{"version":%d,"routes":[`, tunnel.Version) // Flush returns the first error
	for i, e := range t {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		_, _ = out.Write(e.entry)
		_, _ = out.Write(strconv.AppendBool(nil, e.live))
		_ = out.WriteByte('}')
	}
	_, _ = out.WriteString("]}\n")
	return out.Flush()
}
