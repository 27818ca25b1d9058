// Command cluster runs a real Kubernetes on one Linux machine, from Go modules and Debian packages: an API server, and up
// to three nodes with their own kubelet, containerd and network. It needs no container engine and no internet beyond the
// Go module proxy, and leaves nothing behind.
//
// docs/local-cluster.md says how it works.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func init() {
	// Keep the main goroutine on the main thread: `enter` and `node-exec` change that thread's namespaces and then
	// start a program from it.
	runtime.LockOSThread()
}

func main() {
	os.Exit(run())
}

// run runs the command line and returns the exit status.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	err := rootCommand().ExecuteContext(ctx)
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	return 0
}

// options are the flags of all commands.
type options struct {
	base     string
	instance int
}

func (o *options) layout() layout { return layout{base: o.base, instance: o.instance} }

// instanceVariable chooses the cluster for scripts that call this program in many places.
const instanceVariable = "SONDE_CLUSTER_INSTANCE"

// defaultInstance is -1, which no command accepts, if the variable holds no number.
func defaultInstance() int {
	text := os.Getenv(instanceVariable)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

func rootCommand() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "Run a real Kubernetes on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
		// Read --cache also before `kubectl`, which parses no flags itself.
		TraverseChildren: true,
		Args:             cobra.NoArgs,
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if o.instance < 0 || o.instance > maxInstance {
				return fmt.Errorf("--instance %d: clusters are numbered 0 to %d", o.instance, maxInstance)
			}
			if o.base != "" {
				return nil
			}
			var err error
			o.base, err = defaultBase()
			return err
		},
	}
	root.PersistentFlags().StringVar(&o.base, "cache", "", "directory of the cluster's files (default sonde/cluster in the user's cache)")
	root.PersistentFlags().IntVar(&o.instance, "instance", defaultInstance(), fmt.Sprintf("which of several clusters on this machine, 0 to %d; by default $%s, or 0", maxInstance, instanceVariable))
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		upCommand(o), downCommand(o), buildCommand(o), loadCommand(o),
		kubectlCommand(o), nodeExecCommand(o), guestCommand(o), kwokCommand(o),
		nodeStopCommand(o), nodeStartCommand(o), apiStopCommand(o), apiStartCommand(o),
		pathCommand(o, "kubeconfig", "Print the path of the administrator's kubeconfig", layout.kubeconfig),
		pathCommand(o, "audit-log", "Print the path of the API server's audit log (JSON lines)", layout.auditLog),
		binCommand(o),
		imageCommand(),
		enterCommand(o), gatewayCommand(o), nodeRunCommand(o), nodeInitCommand(o),
	)
	return root
}

func upCommand(o *options) *cobra.Command {
	var wanted shape
	var withSCC bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Build the binaries and start a cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted.Flavour = chosenFlavour(withSCC)
			return runUp(cmd.Context(), o.layout(), newProgress(cmd.ErrOrStderr()), wanted)
		},
	}
	openshiftFlag(cmd, &withSCC)
	cmd.Flags().IntVar(&wanted.Nodes, "nodes", 2, fmt.Sprintf("number of nodes, 1 to %d", maxNodes))
	cmd.Flags().Var(&wanted.NodeDisk, "node-disk", "give each node a disk of this size for Pods' volumes, like 2Gi: an ext4 file system on a loop device")
	return cmd
}

// openshiftFlag adds the flag that chooses the flavour.
func openshiftFlag(cmd *cobra.Command, chosen *bool) {
	cmd.Flags().BoolVar(chosen, "openshift", false, "with OpenShift's SCC admission and its default SecurityContextConstraints")
}

func chosenFlavour(withSCC bool) flavour {
	if withSCC {
		return openshift
	}
	return plain
}

func downCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove everything except the built binaries",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDown(o.layout(), newProgress(cmd.ErrOrStderr()))
		},
	}
}

func buildCommand(o *options) *cobra.Command {
	var only []string
	var withSCC bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the binaries and print their directory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := buildBinaries(cmd.Context(), o.layout(), newProgress(cmd.ErrOrStderr()), chosenFlavour(withSCC), only...)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), set)
			return nil
		},
	}
	openshiftFlag(cmd, &withSCC)
	cmd.Flags().StringSliceVar(&only, "only", nil, "build only these: kube, etcd, node, coredns, provisioner, pause (envtest needs kube,etcd)")
	return cmd
}

func loadCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "load IMAGE.tar[=NAME:TAG]...",
		Short: "Load images from docker archives into the cluster, under their own or another name",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return loadArchives(cmd.Context(), o.layout(), newProgress(cmd.ErrOrStderr()), args)
		},
	}
}

func kubectlCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl ARGS...",
		Short: "Run the cluster's own kubectl as administrator",
		// kubectl parses all flags.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			l := o.layout()
			s, err := readState(l)
			if err != nil {
				return err
			}
			// This process becomes kubectl, so that signals and the exit status are kubectl's.
			run := kubectl(cmd.Context(), l, s, args...)
			if err := unix.Exec(run.Path, run.Args, run.Env); err != nil {
				return fmt.Errorf("start %s: %w", run.Path, err)
			}
			return nil
		},
	}
}

// pathCommand prints a path of the running cluster.
func pathCommand(o *options, use, short string, path func(layout) string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := completeState(o.layout()); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), path(o.layout()))
			return nil
		},
	}
}

func binCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "bin",
		Short: "Print the directory of the built binaries, for KUBEBUILDER_ASSETS",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := binarySet(cmd.Context(), o.layout(), plain)
			if err != nil {
				return err
			}
			if _, err := os.Stat(set); err != nil {
				return errors.New("nothing is built yet: run `cluster build --only kube,etcd` (envtest) or `cluster up`")
			}
			fmt.Fprintln(cmd.OutOrStdout(), set)
			return nil
		},
	}
}
