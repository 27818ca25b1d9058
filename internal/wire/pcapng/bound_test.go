package pcapng_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

func TestReaderBoundsInterfaces(t *testing.T) {
	const most = 1 << 16
	file := pcapng.AppendSection(nil, &pcapng.Section{})
	for range most + 1 {
		file = pcapng.AppendInterface(file, &pcapng.Interface{LinkType: pcapng.LinkTypeEthernet})
	}
	r := pcapng.NewReader(bytes.NewReader(file))
	read := 0
	for {
		_, err := r.Next()
		if err != nil {
			if !errors.Is(err, pcapng.ErrFormat) {
				t.Errorf("error %v, want ErrFormat", err)
			}
			break
		}
		read++
	}
	if read != most+1 { // the section and its interfaces
		t.Errorf("read %d blocks, want %d", read, most+1)
	}
}
