package stowaway

import (
	"bufio"
	"crypto/sha256"
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

// sum returns a hash, which is never zero.
func (t table) sum() (s [sha256.Size]byte) {
	all := sha256.New()
	for _, e := range t {
		_, _ = all.Write(e.sum[:])
		_, _ = all.Write(strconv.AppendBool(nil, e.live))
	}
	all.Sum(s[:0])
	return s
}

// write writes a line.
func (t table) write(to io.Writer) error {
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
