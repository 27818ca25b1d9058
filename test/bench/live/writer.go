package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// writeInterval is how often the writer appends packets, as a followed probe does, and reportInterval how often it reports.
const (
	writeInterval  = 25 * time.Millisecond
	reportInterval = 400 * time.Millisecond
)

// packetSizes are the bytes of the writer's packets, one after the other.
var packetSizes = []int{64, 1500, 120, 1500, 576, 1500}

// written is the report of the writer.
type written struct {
	Packets int64         `json:"packets"`
	Bytes   int64         `json:"bytes"` // of blocks
	Wall    time.Duration `json:"wall"`
}

// fileName of a writer's file.
func fileName(n int) string { return fmt.Sprintf("bench-%d.pcapng", n) }

// fileHead returns what a file of packets begins with.
func fileHead() []byte {
	return pcapng.AppendInterface(pcapng.AppendSection(nil, &pcapng.Section{}), &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
}

// growing is a file that the writer appends to.
type growing struct {
	file           *os.File
	packets, bytes int64
}

// runWriter is the probe of several Pods: it appends packets to a file for each, at a steady rate, and ends the capture.
func runWriter(_ context.Context, s *settings) error {
	files := make([]growing, s.Files)
	head := fileHead()
	for i := range files {
		f, err := os.Create(filepath.Join(s.Results, fileName(i)))
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Write(head); err != nil {
			return err
		}
		files[i].file = f
	}
	if err := report(s, files, account.StateCapturing); err != nil {
		return err
	}
	var out written
	began, reported := time.Now(), time.Now()
	var blocks []byte
	for tick := time.NewTicker(writeInterval); out.Wall < s.Time; <-tick.C {
		last := out.Wall
		out.Wall = min(time.Since(began), s.Time)
		for i := range files {
			f := &files[i]
			goal := int64(float64(s.Rate) * out.Wall.Seconds())
			blocks = f.fill(blocks[:0], goal, began.Add(last), out.Wall-last)
			if _, err := f.file.Write(blocks); err != nil {
				return err
			}
		}
		if time.Since(reported) > reportInterval {
			reported = time.Now()
			if err := report(s, files, account.StateCapturing); err != nil {
				return err
			}
		}
		if err := horizon(s, began.Add(out.Wall)); err != nil {
			return err
		}
	}
	for i := range files {
		out.Packets, out.Bytes = out.Packets+files[i].packets, out.Bytes+files[i].bytes
	}
	return errors.Join(report(s, files, account.StateDone), json.NewEncoder(os.Stdout).Encode(out))
}

// fill appends packets until the file has so many bytes of them. Their times are spread over span.
func (f *growing) fill(b []byte, goal int64, from time.Time, span time.Duration) []byte {
	data := make([]byte, 1500)
	missing := goal - f.bytes
	for int64(len(b)) < missing {
		size := packetSizes[f.packets%int64(len(packetSizes))]
		at := from.Add(time.Duration(float64(span) * float64(len(b)) / float64(missing)))
		b = pcapng.AppendPacket(b, &pcapng.Packet{Time: uint64(at.UnixNano()), Data: data[:size], Length: uint32(size)})
		f.packets++
	}
	f.bytes += int64(len(b))
	return b
}

// horizon says that all packets up to a time are in the files.
func horizon(s *settings, at time.Time) error {
	f, err := os.OpenFile(filepath.Join(s.Results, captureconfig.HorizonFile), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(captureconfig.AppendHorizon(nil, uint64(at.UnixNano())), 0)
	return errors.Join(err, f.Close())
}

// report replaces the account that the keeper reads.
func report(s *settings, files []growing, state account.State) error {
	a := account.Account{State: state, Started: time.Now().UTC()}
	for i := range files {
		a.Packets += files[i].packets
		a.Files = append(a.Files, account.File{Name: fileName(i), Bytes: files[i].bytes + int64(len(fileHead()))})
	}
	a.Seen = a.Packets
	if state == account.StateDone {
		a.Reason, a.Complete, a.Ended = account.ReasonStopped, true, time.Now().UTC()
	}
	b, err := a.Marshal()
	if err != nil {
		return err
	}
	temporary := filepath.Join(s.Results, ".progress")
	if err := os.WriteFile(temporary, b, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(s.Results, captureconfig.ProgressFile))
}
