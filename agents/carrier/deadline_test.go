package carrier

import (
	"io"
	"testing"
	"time"
)

// TestSlowStart: the first bytes come in parts, and turn out not to be HTTP/1. The time that a request line may take must not end the
// connection later.
func TestSlowStart(t *testing.T) {
	echo := func(_ string, d duplex) { _, _ = io.Copy(d, d) }
	f := start(t, nil, echo, whole("a"))
	c := f.dial(t)
	for i, part := range []string{"0042", "\x00\x01", "later"} {
		if i == 2 {
			time.Sleep(lineTime)
		}
		_, _ = io.WriteString(c, part)
		time.Sleep(50 * time.Millisecond)
	}
	back := make([]byte, len("0042\x00\x01later"))
	if n, err := io.ReadFull(c, back); err != nil {
		t.Errorf("%q comes back, %v", back[:n], err)
	}
}
