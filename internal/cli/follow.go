package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/follow"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/version"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

func newFollow(p *plugin) *cobra.Command {
	var delay time.Duration
	cmd := &cobra.Command{
		Use:   "follow NAME",
		Short: "Write the packets of a running capture to standard output, of all Pods in the order of time",
		Long: `Writes the packets of all Pods of the PacketCapture NAME to standard output while they are captured: one pcapng stream in
the order of time, which Wireshark and tshark read. Pods that join the capture appear in it.

The stream begins with what each Pod has captured lately, and ends with the capture. Interrupting (Ctrl-C) ends only the stream.
A slow reader slows neither the target nor the capture: packets that it has no time for are left out of the stream and counted.
They are in the files, which the command download saves.

Exit code: 0 nothing was left out; 3 packets were left out; 1 error; 130 interrupted.`,
		Example: `  kubectl sonde follow web-x7k2p -n shop | wireshark -k -i -
  kubectl sonde follow web-x7k2p -n shop | tshark -i - -Y http.request`,
		Args: oneArgument("NAME of a PacketCapture"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.followPackets(cmd.Context(), args[0], delay) },
	}
	cmd.Flags().DurationVar(&delay, "delay", follow.DefaultDelay, "How long a packet waits for earlier ones of other Pods, like 200ms")
	return cmd
}

// errReaderEnded ends a stream whose reader has ended, as head does.
var errReaderEnded = errors.New("the reader of the stream has ended")

func (p *plugin) followPackets(ctx context.Context, name string, delay time.Duration) error {
	if p.width != nil {
		return errors.New("standard output is a terminal, and packets are no text: add | wireshark -k -i - or | tshark -i -")
	}
	if delay < 0 || delay > time.Minute {
		return fmt.Errorf("--delay %s: choose one between 0s and 1m", delay)
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	display := p.display()
	stream := follow.New(ctx, follow.Options{
		Blocks: endpoint.LiveBlocks, Out: p.streams.Out, Delay: max(delay, time.Millisecond),
		Application: "kubectl-sonde " + version.Version, Comment: "PacketCapture " + c.GetNamespace() + "/" + c.GetName(),
		OnWriteError: func() { cancel(errReaderEnded) },
	})
	s := capture.NewState(c, p.clock.Now())
	go newAddressNames(ctx, conn.client, c).stream(ctx, stream.AddNames)
	follower := &capture.Follower{
		Client: conn.client, Progress: endpoint.Progress, OnUpdate: stream.Update, Display: display, Clock: p.clock, Refresh: refresh, Retry: retry,
	}
	err = follower.Follow(ctx, s)
	for _, pod := range s.Pods() { // those that ended before their files were known
		stream.Update(filesOf(&pod))
	}
	result, streamErr := stream.Finish(ctx)
	display.Close()
	switch {
	case errors.Is(context.Cause(ctx), errReaderEnded):
		return nil
	case err != nil:
		return err
	case streamErr != nil:
		return streamErr
	}
	return printFollowed(p.streams.ErrOut, result)
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

// filesOf is an update with the files of a Pod's result.
func filesOf(p *v1alpha1.PodResult) results.Update {
	u := results.Update{Pod: p.Name, UID: p.UID, Account: &account.Account{}}
	for _, f := range p.Files {
		u.Account.Files = append(u.Account.Files, account.File{Name: f.Name, Bytes: f.Bytes})
	}
	return u
}

// printFollowed prints what the stream had, and what it lacks.
func printFollowed(w io.Writer, r follow.Result) error {
	fmt.Fprintf(w, "%d packets of %d Pods\n", r.Packets, r.Pods)
	if r.Earlier > 0 {
		fmt.Fprintf(w, "%d earlier packets are not in the stream, but in the files\n", r.Earlier)
	}
	if r.Late > 0 {
		fmt.Fprintf(w, "%d packets came too late for their place in the order of time: a longer --delay avoids this\n", r.Late)
	}
	if r.Skipped > 0 {
		fmt.Fprintf(w, "%d packets were left out, because the reader of the stream was slow; they are in the files\n", r.Skipped)
		return exitCode(report.ExitIncomplete)
	}
	return nil
}
