package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/kind"
)

// defaultOperatorNamespace is the default namespace of an installation.
const defaultOperatorNamespace = "sonde-system"

const usage = `Captures the packets, or traces the system calls, of every Pod of a workload into one file. Or answers its requests on this
machine.

The plugin creates a PacketCapture, a Trace or an InterceptRequest in the cluster with your rights: you need the verb
"capture", "trace" or "intercept" on pods in the namespace of the target.`

const examples = `  # 30 seconds of every Pod of a Deployment, merged in the order of time
  kubectl sonde capture deploy/web -n shop --for 30s -o web.pcapng

  # Only HTTP, one file per Pod
  kubectl sonde capture sts/db -n shop --filter 'tcp port 8080' --keep-separate -o db/

  # The busiest conversations
  kubectl sonde conversations web.pcapng

  # Which processes it starts, and which files they open, read and write
  kubectl sonde trace deploy/web -n shop --for 10s --events process,file,io

  # Answer one user's requests on this machine
  kubectl sonde intercept deploy/web -n shop --port 8080 --to 127.0.0.1:8080 --header x-user=alice`

// plugin is shared by all commands.
type plugin struct {
	streams           genericiooptions.IOStreams
	terminal          *os.File
	keyboard          *os.File
	mode              *terminalMode
	colour            bool
	width             func() int
	flags             *genericclioptions.ConfigFlags
	operatorNamespace string
	interrupts        *interrupts
	clock             clock.WithTicker
}

func newPlugin(o Options, i *interrupts) *plugin {
	return &plugin{
		streams: o.Streams, terminal: o.Terminal, keyboard: o.Keyboard, mode: &terminalMode{}, colour: o.Colour, width: o.Width, interrupts: i, clock: clock.RealClock{},
		flags: genericclioptions.NewConfigFlags(true),
	}
}

func (p *plugin) command() *cobra.Command {
	root := &cobra.Command{
		Use:     "kubectl-sonde",
		Short:   "Capture the packets, trace the system calls, or answer the requests of every Pod of a workload",
		Long:    usage,
		Example: examples,
		Annotations: map[string]string{
			cobra.CommandDisplayNameAnnotation: "kubectl sonde",
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(p.streams.In)
	root.SetOut(p.streams.Out)
	root.SetErr(p.streams.ErrOut)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if flag, _, ok := strings.Cut(err.Error(), ": strconv.ParseInt"); ok {
			err = errors.New(flag + ": write a number")
		}
		return fmt.Errorf("%w\nSee '%s --help' for usage", err, c.CommandPath())
	})
	p.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&p.operatorNamespace, "operator-namespace", defaultOperatorNamespace,
		"Namespace that Sonde is installed in")
	root.AddCommand(
		newCapture(p), newFollow(p), newExtcap(p), newDownload(p), newGet(p), newStop(p), newDelete(p), newConversations(p), newReport(p), newTrace(p),
		newIntercept(p), newIntercepts(p), newDown(p),
		newFluentPVC(p), newCollector(p), newDoctor(p), newMustGather(p), newVersion(p), newOptions(p),
	)
	root.SetUsageTemplate(usageTemplate)
	return root
}

// display returns the display of a running command: the terminal, or plain if there is none. Plain is not the standard output, which may
// be the file.
func (p *plugin) display(plain io.Writer) live.Display {
	if p.terminal == nil {
		return live.NewPlain(plain, p.clock)
	}
	return live.NewTerminal(p.terminal, p.terminalSize)
}

// terminalSize returns the size of the terminal in characters, or zero if it is unknown.
func (p *plugin) terminalSize() (width, height int) {
	width, height, err := term.GetSize(int(p.terminal.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// commandFor returns the command with which the user can stop or download a capture later.
func (p *plugin) commandFor(verb string, c v1alpha1.Capture) string {
	k, _ := kind.CaptureOf(c.KindName()) // every Capture has a known kind
	return p.commandLine(verb+" "+k.Argument(c.GetName()), c.GetNamespace())
}

// commandLine returns a command of the plugin for the same cluster and operator.
func (p *plugin) commandLine(command, namespace string) string {
	s := fmt.Sprintf("kubectl sonde %s -n %s", command, namespace)
	if c := *p.flags.Context; c != "" {
		s += " --context " + c
	}
	if p.operatorNamespace != defaultOperatorNamespace {
		s += " --operator-namespace " + p.operatorNamespace
	}
	return s
}
