package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/follow"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/cli/results"
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
They are in the files, which the command download saves.

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
		return p.suggestPipe(err, "follow "+name)
	}
	conn, c, err := p.followed(ctx, name)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // see attach
	access := results.NewAccess(conn.client, p.clock, c)
	defer p.closeAccess(ctx, access)
	endpoint, err := results.NewClient(conn.config, p.operatorNamespace, c, access, results.DefaultTiming)
	if err != nil {
		return err
	}
	if _, err := access.Token(ctx); err != nil { // a stream without it would wait for the end of the capture
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o.onEnded = func() { cancel(follow.ErrReaderEnded) }
	stream, err := p.newPacketStream(ctx, endpoint, c, o)
	if err != nil {
		return err
	}
	display := p.display()
	endpoint.OnBusy = func(reason string) { display.PrintLine("Waiting for packets: " + reason) }
	s := capture.NewState(c, p.clock.Now())
	go newAddressNames(ctx, conn.client, c).stream(ctx, stream.stream.AddNames)
	follower := &capture.Follower{
		Client: conn.client, Progress: endpoint.Progress, OnUpdate: stream.update, Display: display, Clock: p.clock, Refresh: refresh, Retry: retry,
	}
	err = follower.Follow(ctx, s)
	for _, pod := range s.Pods() { // those that ended before their files were known
		stream.update(filesOf(&pod))
	}
	stream.finish(ctx)
	display.Close()
	switch {
	case stream.readerEnded():
		return nil
	case stream.err != nil:
		return stream.err
	case errors.Is(err, follow.ErrReaderEnded):
		return nil
	case err != nil:
		return err
	}
	return printFollowed(p.streams.ErrOut, stream.result)
}

// followed returns a capture whose packets can be followed.
func (p *plugin) followed(ctx context.Context, name string) (*connection, v1alpha1.Capture, error) {
	ref, err := parseReference(name)
	if err != nil {
		return nil, nil, err
	}
	conn, err := p.connect()
	if err != nil {
		return nil, nil, err
	}
	c, err := ref.get(ctx, conn)
	if err != nil {
		return nil, nil, err
	}
	pc, ok := c.(*v1alpha1.PacketCapture)
	switch {
	case !ok:
		return nil, nil, fmt.Errorf("%s %s has no packets: kubectl sonde trace shows the events of a Trace while it runs", c.KindName(), c.GetName())
	case pc.Spec.Rotate != nil:
		return nil, nil, errors.New("a capture with rotate cannot be followed: create one without it")
	case pc.Status.Phase.Final():
		return nil, nil, fmt.Errorf("the capture has ended. To save its packets:\n  %s", p.commandFor("download", c))
	}
	return conn, c, nil
}

// printFollowed prints what the stream had, and what it lacks.
func printFollowed(w io.Writer, r follow.Result) error {
	fmt.Fprintf(w, "%d packets of %d Pods\n", r.Packets, r.Pods)
	if r.Earlier > 0 {
		fmt.Fprintf(w, "%d earlier packets are not in the stream, but in the files\n", r.Earlier)
	}
	if r.Late > 0 {
		fmt.Fprintln(w, lateNote(r.Late))
	}
	if r.Abandoned {
		fmt.Fprintln(w, "the last packets did not come in time; they are in the files")
	}
	if r.Skipped > 0 {
		fmt.Fprintf(w, "%d packets were left out, because the reader of the stream was slow; they are in the files\n", r.Skipped)
	}
	if r.Skipped > 0 || r.Abandoned {
		return exitCode(report.ExitIncomplete)
	}
	return nil
}
