package pcapng

import (
	"bufio"
	"io"
)

// Whole returns how many bytes of a file end with a whole block: at most size, at least from, where a block is known
// to end. A writer that was killed, or is at work, may have left a part of a block; what reads the file up to here
// never sees it. Bytes that are no blocks in the writer's order end the walk, and so does an error of reading.
func Whole(f io.ReaderAt, from, size int64) int64 {
	end := from
	r := bufio.NewReaderSize(io.NewSectionReader(f, from, max(0, size-from)), 64<<10)
	for {
		head, err := r.Peek(8)
		if err != nil {
			return end
		}
		total := order.Uint32(head[4:])
		if total < blockOverhead || total%4 != 0 || total > maxBlockLen || end+int64(total) > size {
			return end
		}
		if _, err := r.Discard(int(total) - 4); err != nil {
			return end
		}
		if tail, err := r.Peek(4); err != nil || order.Uint32(tail) != total {
			return end
		}
		if _, err := r.Discard(4); err != nil {
			return end
		}
		end += int64(total)
	}
}
