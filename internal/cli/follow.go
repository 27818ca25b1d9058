package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/follow"
	"github.com/sonde-operator/sonde/internal/cli/report"
)

func newFollow(p *plugin) *cobra.Command {
	o := &streamOptions{}
	cmd := &cobra.Command{
		Use:   "follow NAME",
		Short: "Write the packets of a running capture to standard output or to Wireshark, of all Pods in the order of time",
		Long: `Writes the packets of all Pods of the PacketCapture NAME to standard output while they are captured: one pcapng stream in
the order of time, which Wireshark and tshark read. Pods that join the capture appear in it.

The stream begins with what each Pod has captured lately, and ends with the capture. Interrupting (Ctrl-C) ends only the stream.
A slow reader slows neither the target nor the capture: packets that it has no time for are left out of the stream and counted.
They are in the files, which the command download saves. With rotate, the stream of each Pod goes on from file to file. A reader that is
so slow that a file is removed before it is read lacks the packets of that file for ever: they are counted, too.

--wireshark starts Wireshark on the stream. Closing Wireshark ends the command, and not the capture.

Exit code: 0 nothing was left out; 3 packets were left out; 1 error; 130 interrupted.`,
		Example: `  kubectl sonde follow web-x7k2p -n shop --wireshark
  kubectl sonde follow web-x7k2p -n shop | wireshark -k -i -
  kubectl sonde follow web-x7k2p -n shop | tshark -l -r - -Y http.request`,
		Args:              oneArgument("NAME of a PacketCapture"),
		ValidArgsFunction: p.completeRunning,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.followPackets(cmd.Context(), args[0], *o) },
	}
	o.addDelay(cmd)
	o.addWireshark(cmd)
	return cmd
}

func (p *plugin) followPackets(ctx context.Context, name string, o streamOptions) error {
	if err := o.check(p); err != nil {
		return suggestPipe(err, "omit --wireshark")
	}
	conn, c, err := p.followed(ctx, name)
	if err != nil {
		return err
	}
	a, err := p.newSession(ctx, conn, c, true)
	if err != nil {
		return err
	}
	defer a.close(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o.onEnded = func() { cancel(follow.ErrReaderEnded) }
	stream, err := p.newPacketStream(ctx, a.endpoint, c, o)
	if err != nil {
		return err
	}
	a.endpoint.OnBusy = func(reason string) { a.display.PrintLine("Waiting for packets: " + reason) }
	a.with = &companions{all: []companion{stream}}
	go newAddressNames(ctx, conn.names, c).stream(ctx, stream.stream.AddNames)
	state := capture.NewState(c, p.clock.Now())
	err = p.follow(ctx, a, state, saveOptions{})
	a.display.Close()
	download := p.commandFor("download", c)
	switch {
	case stream.err != nil && !stream.readerEnded():
		return stream.err
	case stream.readerEnded(), errors.Is(err, follow.ErrReaderEnded):
		r := stream.result // what came after the end of the reader is unwanted
		if r.Skipped+r.Waited == 0 {
			return nil
		}
		return printFollowed(p.streams.ErrOut, follow.Result{Pods: r.Pods, Packets: r.Packets, Skipped: r.Skipped, Waited: r.Waited}, 0, 0, c.Spec.Rotate != nil, download)
	case err != nil:
		return err
	}
	early := endedEarly(&stream.result, c.Status.Pods, state.Pods())
	gone := goneWithoutStream(&stream.result, c.Status.Pods)
	return printFollowed(p.streams.ErrOut, stream.result, early, gone, c.Spec.Rotate != nil, download)
}

// goneWithoutStream counts the Pods whose files were gone before their stream began, although they had not ended when follow began. How
// many packets they captured is not always known.
func goneWithoutStream(r *follow.Result, before []v1alpha1.PodResult) int {
	gone := maps.Clone(r.Gone)
	for i := range before {
		if before[i].Phase.Final() {
			delete(gone, before[i].UID)
		}
	}
	return len(gone)
}

// endedEarly counts the packets that a Pod captured after its stream had ended. A keeper ends the stream when the keeper itself ends, and
// when its probe does not report for some time. endedEarly also counts the packets of Pods whose stream never began. It does not count
// those of Pods that had ended before.
func endedEarly(r *follow.Result, before, pods []v1alpha1.PodResult) (n int64) {
	over := map[string]bool{}
	for i := range before {
		over[before[i].UID] = before[i].Phase.Final()
	}
	for i := range pods {
		p := &pods[i]
		if read, streamed := r.Read[p.UID]; streamed || !over[p.UID] {
			n += max(0, p.Packets+p.Overwritten-read-r.LeftOut[p.UID])
		}
	}
	return n
}

// followed returns a capture whose packets can be followed.
func (p *plugin) followed(ctx context.Context, name string) (*connection, *v1alpha1.PacketCapture, error) {
	conn, c, err := p.find(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	pc, ok := c.(*v1alpha1.PacketCapture)
	switch {
	case !ok:
		return nil, nil, fmt.Errorf("a Trace has no packets to follow. To save its events when it has ended:\n  %s", p.commandFor("download", c))
	case pc.Status.Phase.Final():
		return nil, nil, fmt.Errorf("the capture has ended. To save its packets:\n  %s", p.commandFor("download", c))
	}
	return conn, pc, nil
}

// printFollowed prints what the stream had, what it lacks, and the command that saves all packets, or those that a ring has. early packets
// came after the end of their stream, and the files of gone Pods before its beginning.
func printFollowed(w io.Writer, r follow.Result, early int64, gone int, ring bool, download string) error {
	fmt.Fprintf(w, "%d packets of %d Pods\n", r.Packets, r.Pods)
	missing := func(packets uint64, why string) {
		if packets > 0 {
			fmt.Fprintf(w, "%d packets are not in the stream, because %s\n", packets, why)
		}
	}
	missing(r.Earlier, "they were captured before it began")
	if r.Late > 0 {
		fmt.Fprintln(w, lateNote(r.Late))
	}
	if r.Abandoned {
		fmt.Fprintln(w, "the last packets are not in the stream, because they did not come in time")
	} else {
		missing(uint64(early), "a Pod's stream ended before the capture did, or did not begin")
	}
	if gone > 0 {
		fmt.Fprintf(w, "Pods whose files were gone before their streams began, so that none of their packets are in the stream: %d\n", gone)
	}
	missing(r.Skipped, "its reader was slow")
	missing(r.Waited, "their Pods had to wait for a place or a connection")
	incomplete := r.Skipped > 0 || r.Waited > 0 || r.Abandoned || early > 0 || gone > 0
	if incomplete || r.Earlier > 0 {
		what := "all packets"
		if ring {
			what = "the packets that the ring still has"
		}
		fmt.Fprintf(w, "To save %s:\n  %s\n", what, download)
	}
	if incomplete {
		return exitCode(report.ExitIncomplete)
	}
	return nil
}
