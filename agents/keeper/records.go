package keeper

import (
	"fmt"
	"io"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// records is how a followed file is cut: into lines of a trace, or into blocks of a capture.
type records struct {
	contentType string
	// heartbeat is a record that says nothing.
	heartbeat []byte
	// interval is how often the file is read.
	interval time.Duration
	// atOnce is how many bytes are sent every liveInterval, and maxLag how many a reader of the newest records may be behind.
	atOnce, maxLag int64
	// horizon returns a record that says that all records up to a time were sent; nil if there is none.
	horizon func(at uint64) []byte
	// end returns where the last complete record between two offsets ends. A record starts at from.
	end func(f io.ReaderAt, from, to int64) int64
	// skip returns a record that stands for those from one offset to about another, and where reading goes on.
	skip func(f io.ReaderAt, from, to int64) (instead []byte, at int64, err error)
}

// lineRecords are cut so that a person can read them: more would only take the target's network. The complete file is fetched at the end.
var lineRecords = &records{
	contentType: "application/x-ndjson", heartbeat: []byte("\n"), interval: liveInterval, atOnce: liveBytes, maxLag: maxLag,
	end: lastLineEnd,
	skip: func(f io.ReaderAt, from, to int64) ([]byte, int64, error) {
		at := nextLine(f, to-liveBytes, to)
		instead, err := tracefmt.AppendSkip(nil, at-from)
		return instead, at, err
	},
}

// blockRecords are for programs. A Pod may send 32 MiB/s to one reader.
var blockRecords = &records{
	contentType: "application/x-pcapng", heartbeat: pcapng.AppendGap(nil, &pcapng.Gap{}), interval: packetInterval, atOnce: 8 << 20, maxLag: 32 << 20,
	end:     pcapng.CompleteLen,
	skip:    skipBlocks,
	horizon: func(at uint64) []byte { return pcapng.AppendGap(nil, &pcapng.Gap{Until: at}) },
}

// skipBlocks leaves out the packets between two offsets, and counts them. Other blocks are sent nevertheless.
func skipBlocks(f io.ReaderAt, from, to int64) ([]byte, int64, error) {
	gap, at := &pcapng.Gap{}, from
	var failed error
	_, err := pcapng.Walk(io.NewSectionReader(f, from, to-from), func(info pcapng.BlockInfo) {
		next := at + int64(info.Size)
		switch {
		case info.Packet:
			gap.Packets++
		case len(gap.Others)+int(info.Size) > maxOthers:
			failed = fmt.Errorf("skip blocks: more than %d bytes are no packets", maxOthers)
		default:
			b := make([]byte, info.Size)
			if _, err := f.ReadAt(b, at); err != nil {
				failed = fmt.Errorf("skip blocks: %w", err)
			}
			gap.Others = append(gap.Others, b...)
		}
		at = next
	})
	if err == nil {
		err = failed
	}
	gap.Bytes = uint64(at - from)
	return pcapng.AppendGap(nil, gap), at, err
}

// maxOthers bounds the blocks in a gap, in bytes.
const maxOthers = 4 << 20
