package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// liveFlags are the flags of the command capture for packets while they are captured.
type liveFlags struct {
	live   bool
	top    bool
	stream streamOptions
}

func (f *liveFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.live, "live", false, "Write the packets to standard output while they are captured, as one pcapng stream of all Pods")
	cmd.Flags().BoolVar(&f.top, "top", false, topUsage("conversations"))
	f.stream.addWireshark(cmd)
	f.stream.addDelay(cmd)
}

// choose sets how packets are written while they are captured, if at all.
func (f *liveFlags) choose(p *plugin, opts *saveOptions) error {
	if err := f.conflict(opts); err != nil {
		return err
	}
	opts.top = f.top && p.terminal != nil
	out := opts.out
	if !f.live && !f.stream.wireshark && (!out.Streams() || out.Separate) { // capture.Output.Check refuses the latter
		return nil
	}
	f.stream.complete, f.stream.fromStart = out.Streams(), true
	if err := f.stream.check(p); err != nil {
		return suggestPipe(err, "write --live instead of --wireshark")
	}
	if out.Path == "" {
		opts.out.Path = "-" // nothing is saved
	}
	f.stream.onEnded = func() { p.interrupts.deliver() } // the capture stops
	opts.stream = &f.stream
	return nil
}

// conflict returns an error for flags that exclude each other.
func (f *liveFlags) conflict(opts *saveOptions) error {
	streams := f.live || f.stream.wireshark
	switch {
	case streams && opts.out.Separate:
		return errors.New("--keep-separate saves files, and a live stream has all Pods in one: omit one of the two")
	case f.stream.wireshark && (f.live || opts.out.Streams()):
		return errors.New("--wireshark gives the packets to Wireshark, --live and -o - to standard output: choose one of them")
	case f.live && opts.json:
		return errors.New("--json and --live both use standard output: omit one of the two")
	}
	return nil
}
