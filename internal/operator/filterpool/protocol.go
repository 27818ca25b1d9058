package filterpool

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

// maxFrame bounds a frame in bytes: a program of 4096 instructions takes less than a third of it.
const maxFrame = 512 << 10

// request asks the child for one compilation.
type request struct {
	Expression string              `json:"expression"`
	Link       pcapfilter.LinkType `json:"link"`
	SnapLen    int                 `json:"snapLen"`
}

// answer to a request. The first answer of a child, before any request, says that it is ready, or why it is not.
type answer struct {
	// Program is checked by the kernel's rules while it is read: the child is not trusted.
	Program bpfprog.Program `json:"program,omitempty"`
	Refusal *refusal        `json:"refusal,omitempty"`
	// Failure is an error that is not the user's.
	Failure string `json:"failure,omitempty"`
	// Restrictions of the child, in its first answer.
	Restrictions restriction.InForce `json:"restrictions,omitzero"`
}

// refusal is a pcapfilter.SyntaxError without its expression.
type refusal struct {
	Message   string `json:"message"`
	Offset    int    `json:"offset"`
	Exhausted bool   `json:"exhausted,omitempty"`
}

// writeFrame writes the length of v's JSON as four bytes, and the JSON.
func writeFrame(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	if _, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// readFrame reads a frame into v. It returns io.EOF at the end of the stream between two frames.
func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > maxFrame {
		return fmt.Errorf("read frame: %d bytes, at most %d are allowed", length, maxFrame)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	return nil
}
