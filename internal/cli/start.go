package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
)

// startCommand makes a capture of one kind, and saves what comes of it: capture, and trace.
type startCommand struct {
	plugin  *plugin
	request capture.Request
	build   func(capture.Request) (v1alpha1.Capture, error)
	how     saving
	lines   *lineFlags // nil: there are none
	keep    bool
}

// addFlags adds those that do not differ between kinds.
func (c *startCommand) addFlags(cmd *cobra.Command, kind, file string) {
	f, r := cmd.Flags(), &c.request
	f.StringVar(&r.TargetNamespace, "target-namespace", "", "Namespace of TARGET, where it is not that of the "+kind+"; only from a hub namespace")
	f.BoolVar(&r.NoFollow, "no-follow", false, "Leave out Pods that join TARGET during the "+cmd.Name())
	f.StringVar(&r.RetainFor, "retain-for", "", "How long the Pods' files are kept in the cluster after the "+cmd.Name()+", unless it is deleted (default 1h)")
	f.StringVar(&r.JobID, "job-id", "", "Last part of the Jobs' names: four of [a-z0-9] (default made up)")
	f.StringVar(&r.Name, "name", "", "Name of the "+kind+" (default made from TARGET)")
	f.BoolVar(&c.keep, "keep", false, "Do not delete the "+kind+" when its files are saved")
	addOutputFlags(cmd, &c.how, file)
}

// addOutputFlags adds what these commands and download have in common.
func addOutputFlags(cmd *cobra.Command, how *saving, file string) {
	f := cmd.Flags()
	f.StringVarP(&how.out.Path, "output", "o", "", "File to save to, or - for the standard output (default "+file+")")
	f.BoolVar(&how.out.Separate, "keep-separate", false, "Save one file per Pod, in the directory that --output names")
	f.BoolVar(&how.out.Force, "force", false, "Overwrite what is there")
	f.BoolVar(&how.json, "json", false, "Print the summary as JSON")
}

// output completes how with the file's form and name, and refuses what could not be saved.
func (p *plugin) output(how *saving, name string, c v1alpha1.Capture) error {
	how.out.Form = capture.FormOf(c)
	if how.out.Path == "" {
		how.out.Path = how.out.DefaultPath(name, p.clock.Now())
	}
	how.out.Stdout = p.streams.Out
	if how.json && how.out.Streams() {
		return errors.New("--json and -o - both want the standard output: name a file with -o, or leave --json out")
	}
	return how.out.Check()
}

func (c *startCommand) run(ctx context.Context, target string) error {
	var err error
	if c.request.Target, err = capture.ParseTarget(target); err != nil {
		return err
	}
	conn, err := c.plugin.connect()
	if err != nil {
		return err
	}
	c.request.Namespace = conn.namespace
	made, err := c.build(c.request)
	if err != nil {
		return err
	}
	if c.lines != nil {
		if err := c.lines.choose(c.plugin, &c.how, capture.FormOf(made)); err != nil {
			return err
		}
	}
	if err := c.plugin.output(&c.how, c.request.Target.Name, made); err != nil {
		return err
	}
	if err := conn.client.Create(ctx, made); err != nil {
		return err
	}
	c.how.stoppable, c.how.remove = true, !c.keep
	return c.plugin.attach(ctx, conn, made, c.how)
}
