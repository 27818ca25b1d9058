package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/internal/cli/capture"
)

const captureExamples = `  # 30 seconds of all Pods of a Deployment
  kubectl sonde capture deploy/web -n shop --for 30s -o web.pcapng

  # One Pod, only DNS, the first 128 bytes of each packet
  kubectl sonde capture pod/web-0 -n shop --filter 'udp port 53' --snap-length 128

  # The last 500 MiB of each Pod, of up to four hours: interrupt when it has happened
  kubectl sonde capture deploy/web -n shop --for 4h --rotate 100Mi:5

  # Into another program
  kubectl sonde capture deploy/web -n shop --for 10s -o - | tshark -r -`

type captureCommand struct {
	plugin  *plugin
	request capture.Request
	how     saving
	keep    bool
}

func newCapture(p *plugin) *cobra.Command {
	c := &captureCommand{plugin: p}
	cmd := &cobra.Command{
		Use:   "capture TARGET",
		Short: "Capture the packets of every Pod of a workload, and save them",
		Long: `Captures the packets of every Pod of TARGET and saves them as one pcapng file.

TARGET is deploy/NAME, sts/NAME, ds/NAME, pod/NAME, or the NAME of a Deployment. Interrupting (Ctrl-C)
stops the capture and saves what there is; interrupting once more leaves at once.

Exit code: 0 all is saved; 3 a file is saved, and packets are missing from it or may be; 1 error;
130 left by interrupting.`,
		Example: captureExamples,
		Args:    oneArgument("TARGET, like deploy/web"),
		PreRunE: func(cmd *cobra.Command, _ []string) error { return refuseZero(cmd, "snap-length", "max-packets") },
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	f, r := cmd.Flags(), &c.request
	f.StringVar(&r.Duration, "for", "", "How long to capture: seconds, or like 90s, 5m, 1h30m (default 60s)")
	f.StringVar(&r.Filter, "filter", "", "Which packets, in the language of pcap-filter(7), like 'tcp port 8080'")
	f.StringVar(&r.TargetNamespace, "target-namespace", "", "Namespace of TARGET, where it is not that of the PacketCapture; only from a hub namespace")
	f.Int32Var(&r.SnapLength, "snap-length", 0, "How many bytes of each packet to keep (default 262144)")
	f.StringVar(&r.MaxBytes, "max-bytes", "", "Largest size of one Pod's file, like 100Mi (default 1Gi)")
	f.StringVar(&r.Rotate, "rotate", "", "Keep the newest packets: size of a file and how many are kept for each Pod, like 100Mi:5")
	f.Int64Var(&r.MaxPackets, "max-packets", 0, "End a Pod's capture after so many packets (default no limit)")
	f.StringSliceVar(&r.Interfaces, "interface", nil, "Interfaces of the Pods to capture on, like eth0,lo (default all)")
	f.BoolVar(&r.NoFollow, "no-follow", false, "Leave out Pods that join TARGET during the capture")
	f.StringVar(&r.RetainFor, "retain-for", "", "How long the Pods' files are kept in the cluster after the capture, unless it is deleted (default 1h)")
	f.StringVar(&r.JobID, "job-id", "", "Last part of the Jobs' names: four of [a-z0-9] (default made up)")
	f.StringVar(&r.Name, "name", "", "Name of the PacketCapture (default made from TARGET)")
	f.BoolVar(&c.keep, "keep", false, "Do not delete the PacketCapture when its files are saved")
	addOutputFlags(cmd, &c.how)
	return cmd
}

// addOutputFlags adds what capture and download have in common.
func addOutputFlags(cmd *cobra.Command, how *saving) {
	f := cmd.Flags()
	f.StringVarP(&how.out.Path, "output", "o", "", "File to save to, or - for the standard output (default TARGET-TIME.pcapng)")
	f.BoolVar(&how.out.Separate, "keep-separate", false, "Save one file per Pod, in the directory that --output names")
	f.BoolVar(&how.out.Force, "force", false, "Overwrite what is there")
	f.BoolVar(&how.json, "json", false, "Print the summary as JSON")
}

// output completes how with the file's name, and refuses what could not be saved.
func (p *plugin) output(how *saving, target string) error {
	if how.out.Path == "" {
		how.out.Path = capture.DefaultPath(target, p.clock.Now(), how.out.Separate)
	}
	how.out.Stdout = p.streams.Out
	if how.json && how.out.Streams() {
		return errors.New("--json and -o - both want the standard output: name a file with -o, or leave --json out")
	}
	return how.out.Check()
}

func (c *captureCommand) run(ctx context.Context, target string) error {
	var err error
	if c.request.Target, err = capture.ParseTarget(target); err != nil {
		return err
	}
	conn, err := c.plugin.connect()
	if err != nil {
		return err
	}
	c.request.Namespace = conn.namespace
	pc, err := c.request.Build()
	if err != nil {
		return err
	}
	if err := c.plugin.output(&c.how, c.request.Target.Name); err != nil {
		return err
	}
	if err := conn.client.Create(ctx, pc); err != nil {
		return err
	}
	c.how.stoppable, c.how.remove = true, !c.keep
	return c.plugin.attach(ctx, conn, pc, c.how)
}

// refuseZero refuses what the API could not: there a zero is the same as nothing, and means the default.
func refuseZero(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "0" {
			return fmt.Errorf("--%s 0: write a number above zero, or leave it out", name)
		}
	}
	return nil
}

// oneArgument says which argument is missing, where cobra would only count.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return usageError(cmd, what)
	}
}

func someArguments(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return usageError(cmd, what)
	}
}
