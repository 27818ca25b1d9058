package stowaway

import (
	"io"
	"net/http/httptest"
	"testing"
)

// bursts is a client that sends bursts of bytes. It notes the room for the read that follows each burst, which may wait for long.
type bursts struct {
	left, burst int
	waits       []int
}

func (b *bursts) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.waits = append(b.waits, len(p))
		if len(b.waits) > 3 {
			return 0, io.EOF
		}
		b.left = b.burst
	}
	n := min(len(p), b.left)
	b.left -= n
	return n, nil
}

// TestWaitingStreamHoldsLittle: a stream that waits for its client holds the small buffer, whatever has passed before.
func TestWaitingStreamHoldsLittle(t *testing.T) {
	for _, burst := range []int{100, 10 << 10, largeBuffer, largeBuffer + smallBuffer + 100, 300 << 10} {
		from := &bursts{burst: burst}
		if err := (&stream{}).copyBack(httptest.NewRecorder(), from); err != nil {
			t.Fatal(err)
		}
		for _, room := range from.waits {
			if room > smallBuffer {
				t.Errorf("after a burst of %d bytes it waits with a buffer of %d", burst, room)
			}
		}
	}
}
