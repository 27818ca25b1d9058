package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/follow"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/cli/wireshark"
	"github.com/sonde-operator/sonde/internal/version"
)

// streamOptions say how packets are written while they are captured.
type streamOptions struct {
	// delay of each packet, see follow.Options.
	delay time.Duration
	// complete leaves nothing out.
	complete bool
	// fromStart says that the packets are written from the start of the capture on.
	fromStart bool
	// wireshark starts Wireshark on the packets. Otherwise they go to standard output.
	wireshark bool
	// table, if not nil, gets the packets, too.
	table io.Writer
	// onEnded, if not nil, is called when the reader of the packets has ended.
	onEnded func()
}

// addDelay adds the flag for the delay.
func (o *streamOptions) addDelay(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&o.delay, "delay", follow.DefaultDelay, "How long a packet waits at most for earlier ones of other Pods, like 200ms")
}

// addWireshark adds the flag that starts Wireshark.
func (o *streamOptions) addWireshark(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.wireshark, "wireshark", false, "Start Wireshark on the packets while they are captured")
}

// errTerminal refuses to write packets to a terminal.
var errTerminal = errors.New("standard output is a terminal, and packets are no text: add --wireshark, | wireshark -k -i - or | tshark -r -")

// check finds the errors of newPacketStream before a capture is created.
func (o *streamOptions) check(p *plugin) error {
	if o.delay < 0 || o.delay > time.Minute {
		return fmt.Errorf("--delay %s: choose one between 0s and 1m", o.delay)
	}
	if !o.wireshark {
		if p.width != nil {
			return errTerminal
		}
		return nil
	}
	_, err := wireshark.Find()
	return err
}

// suggestPipe adds to the error of a missing Wireshark how to use another program: how to change the command that was typed.
func suggestPipe(err error, change string) error {
	if !errors.Is(err, wireshark.ErrMissing) {
		return err
	}
	return fmt.Errorf("%w. To use another program, %s and pipe the output into it, like | tshark -l -r -", err, change)
}

// packetStream writes the packets of a running capture. It is a companion.
type packetStream struct {
	stream *follow.Stream
	viewer *wireshark.Viewer // nil unless Wireshark was started
	result follow.Result
	err    error

	percentBefore int // of the garbage collector
}

// streamGarbage is how much the heap of a stream grows between two collections, in percent. Its heap is mostly packets that wait, without
// pointers to follow, and it makes little garbage: a collection takes little time and is rare. By default the heap would double.
const streamGarbage = 25

func (p *plugin) newPacketStream(ctx context.Context, endpoint *results.Client, c v1alpha1.Capture, o streamOptions) (*packetStream, error) {
	s := &packetStream{}
	out := p.streams.Out
	if o.wireshark {
		program, err := wireshark.Find()
		if err != nil {
			return nil, err
		}
		if s.viewer, err = wireshark.Start(program); err != nil {
			return nil, err
		}
		out = s.viewer
		if o.onEnded != nil { // a quiet capture has no write that would fail
			go func() {
				<-s.viewer.Ended()
				o.onEnded()
			}()
		}
	}
	if o.table != nil {
		out = teeWriter{out, o.table}
	}
	s.percentBefore = debug.SetGCPercent(streamGarbage)
	s.stream = p.newStream(ctx, endpoint, c, o, out)
	return s, nil
}

func (p *plugin) newStream(ctx context.Context, endpoint *results.Client, c v1alpha1.Capture, o streamOptions, out io.Writer) *follow.Stream {
	return follow.New(ctx, follow.Options{
		Blocks: endpoint.LiveBlocks, Out: out, Complete: o.complete, FromStart: o.fromStart, Delay: max(o.delay, time.Millisecond),
		Application: "kubectl-sonde " + version.Version, Comment: c.KindName() + " " + c.GetNamespace() + "/" + c.GetName(),
		OnWriteError: o.onEnded,
	})
}

func (s *packetStream) update(u results.Update) { s.stream.Update(u) }

func (s *packetStream) finish(ctx context.Context) {
	s.result, s.err = s.stream.Finish(ctx)
	debug.SetGCPercent(s.percentBefore)
	if s.viewer == nil {
		return
	}
	if err := s.viewer.Close(); err != nil {
		s.err = err
	}
}

// readerEnded reports whether the reader did not want all packets.
func (s *packetStream) readerEnded() bool { return errors.Is(s.err, follow.ErrReaderEnded) }

// errHung says that packets which the plugin had already read may not have reached the reader.
var errHung = errors.New("packets of this or another Pod may not be in the stream: the reader hung for some seconds before it ended")

// saved is the result of a capture that was only streamed. What came after the end of its reader counts as unwanted, unless the user asked
// for all packets. What was left out before, because the reader was slow or hung, is missing.
func (s *packetStream) saved(pods []v1alpha1.PodResult, complete bool) (capture.Saved, error) {
	read := s.result.Read
	switch {
	case s.err != nil && (complete || !s.readerEnded()):
		return capture.Saved{}, s.err
	case s.err != nil:
		read = map[string]int64{}
		for i := range pods {
			read[pods[i].UID] = pods[i].Packets + pods[i].Overwritten - s.result.LeftOut[pods[i].UID]
		}
	}
	saved := capture.Streamed(pods, read, s.result.Bytes)
	if whole := slices.IndexFunc(saved.Files, func(f capture.SavedFile) bool { return f.Err == nil }); s.result.Hung && whole >= 0 {
		saved.Files[whole].Err = errHung
	}
	return saved, nil
}

// addNote says what the stream lacks that the saved file has. A capture that was only streamed has it among its problems.
func (s *packetStream) addNote(saved capture.Saved, r *report.Report) {
	if s.result.Late > 0 && saved.Late == 0 {
		r.Notes = append(r.Notes, lateNote(s.result.Late))
	}
	if r.Total.PacketCounts == nil {
		return
	}
	total, overwritten := int64(0), r.Total.Overwritten
	for _, n := range s.result.Read {
		total += n
	}
	if overwritten > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d packets were in the stream, overwritten ones included", total))
	}
	captured := r.Total.Packets + overwritten
	if saved.Path == "-" || s.readerEnded() || total >= captured && s.err == nil {
		return
	}
	text := fmt.Sprintf("%d of %d packets were not in the stream", max(0, captured-total), captured)
	switch {
	case r.Path != "" && overwritten > 0:
		text += "; those that were not overwritten are in " + r.Path
	case r.Path != "":
		text += "; they are in " + r.Path
	}
	if s.err != nil {
		text += " (" + s.err.Error() + ")"
	}
	r.Notes = append(r.Notes, text)
}

func lateNote(late uint64) string {
	return fmt.Sprintf("%d packets came too late for their place in the order of time: a longer --delay avoids this", late)
}
