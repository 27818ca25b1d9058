package cli

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/internal/cli/extcap"
)

// extcapVariables are those of a shell that the plugin needs: kubectl's configuration, and the PATH with programs that log in to a cluster.
var extcapVariables = []string{"KUBECONFIG", "PATH"}

func newExtcap(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "extcap",
		Short: "Add workloads and running captures to Wireshark's list of interfaces",
		Long: `Adds the workloads and running captures of your namespace to the interfaces that Wireshark and tshark list. Choose one
to capture its packets: no command is needed, and the capture ends when Wireshark stops it.`,
	}
	cmd.AddCommand(newExtcapInstall(p), newExtcapUninstall(p), newExtcapRun(p))
	return cmd
}

func newExtcapInstall(p *plugin) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Add an entry to Wireshark's personal extcap folder",
		Long: `Writes a small script into Wireshark's personal extcap folder. Wireshark runs the script, which calls this plugin. The script has
your present KUBECONFIG and PATH, because a Wireshark that was started from a desktop lacks them. Install again after you change them
or move the plugin.`,
		Example: `  kubectl sonde extcap install
  tshark -D`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the plugin's own path: %w", err)
			}
			s := extcapSystem(cmd)
			if dir == "" {
				dir = s.Dir()
			}
			path, err := s.Install(dir, s.Entry(program, extcapVariables))
			if err != nil {
				return err
			}
			fmt.Fprintf(p.streams.Out, "installed %s\nIn Wireshark, choose Capture, Refresh Interfaces. To list the interfaces here:\n  tshark -D\n", path)
			return nil
		},
	}
	addExtcapDir(cmd, &dir)
	return cmd
}

func newExtcapUninstall(p *plugin) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the entry from Wireshark's personal extcap folder",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := extcapSystem(cmd)
			if dir == "" {
				dir = s.Dir()
			}
			path, err := s.Uninstall(dir)
			if err != nil {
				return err
			}
			text := "removed " + path
			if path == "" {
				text = "there is no entry in " + dir
			}
			fmt.Fprintln(p.streams.Out, text)
			return nil
		},
	}
	addExtcapDir(cmd, &dir)
	return cmd
}

func addExtcapDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "Folder of the entry (default Wireshark's personal extcap folder)")
	_ = cmd.MarkFlagDirname("dir") // it exists
}

func extcapSystem(cmd *cobra.Command) extcap.System {
	home, _ := os.UserHomeDir() // without one, the path is relative
	return extcap.System{
		OS: runtime.GOOS, Getenv: os.Getenv, Home: home,
		Folders: func() string { return extcap.Folders(cmd.Context()) },
	}
}
