package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
)

const captureExamples = `  # 30 seconds of all Pods of a Deployment
  kubectl sonde capture deploy/web -n shop --for 30s -o web.pcapng

  # One Pod, only DNS, the first 128 bytes of each packet
  kubectl sonde capture pod/web-0 -n shop --filter 'udp port 53' --snap-length 128

  # Keep the last 500 MiB of each Pod for up to four hours; interrupt to save them
  kubectl sonde capture deploy/web -n shop --for 4h --rotate 100Mi:5

  # Which process sent which packet
  kubectl sonde capture deploy/web -n shop --for 30s --processes -o web.pcapng

  # Into another program, while they are captured
  kubectl sonde capture deploy/web -n shop --for 10s -o - | tshark -r -

  # Into Wireshark, and into a file
  kubectl sonde capture deploy/web -n shop --for 10m --wireshark -o web.pcapng`

func newCapture(p *plugin) *cobra.Command {
	packets := &liveFlags{}
	c := &startCommand{plugin: p, packets: packets, build: func(r capture.Request) (v1alpha1.Capture, error) { return r.Build() }}
	cmd := &cobra.Command{
		Use:   "capture TARGET",
		Short: "Capture the packets of every Pod of a workload and save them",
		Long: `Captures the packets of every Pod of TARGET and saves them as one pcapng file.

TARGET is deploy/NAME, sts/NAME, ds/NAME, pod/NAME, or the NAME of a Deployment. Interrupting (Ctrl-C)
stops the capture and saves the packets so far. Interrupting again exits at once.

-o - writes all packets to standard output while they are captured, in the order of time, however slow their reader is. With --rotate
it lacks those that the ring overwrites before they are read, and says how many. --live and --wireshark leave out packets for which
the reader has no time, and say so. They save a file only if -o names one.

Exit code: 0 everything is saved; 3 a file is saved, but packets are or may be missing from it; 1 error;
130 interrupted.`,
		Example: captureExamples,
		Args:    oneArgument("TARGET, like deploy/web"),

		ValidArgsFunction: p.completeTarget,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(rejectZero(cmd, "snap-length", "max-packets"), rejectEmpty(cmd, "for", "max-bytes", "rotate", "interface", "engine"))
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	f, r := cmd.Flags(), &c.request
	f.StringVar(&r.Duration, "for", "", "How long to capture: seconds, or a duration like 90s, 5m, 1h30m (default 60s)")
	f.StringVar(&r.Filter, "filter", "", "Which packets to capture, as in pcap-filter(7), like 'tcp port 8080'")
	f.Int32Var(&r.SnapLength, "snap-length", 0, "Number of bytes of each packet to keep (default 262144)")
	f.StringVar(&r.MaxBytes, "max-bytes", "", "Largest size of one Pod's file, like 100Mi (default 1Gi)")
	f.StringVar(&r.Rotate, "rotate", "", "Keep only the newest packets: size and number of files of each Pod, like 100Mi:5")
	f.Int64Var(&r.MaxPackets, "max-packets", 0, "End the capture of a Pod after this many packets (default no limit)")
	f.StringSliceVar(&r.Interfaces, "interface", nil, "Interfaces of the Pods to capture on, like eth0,lo (default all)")
	f.StringVar(&r.Engine, "engine", "", "Capture engine: bpf, afpacket, or auto, which uses bpf where the node supports it (default auto)")
	f.BoolVar(&r.Processes, "processes", false, "Make each packet name the process of the Pod that it belongs to (needs engine bpf or auto)")
	packets.add(cmd)
	c.addFlags(cmd, "PacketCapture", "TARGET-TIME.pcapng")
	return cmd
}
