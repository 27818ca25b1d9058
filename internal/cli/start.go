package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
)

// startCommand is the command capture or trace: it creates an object and saves its results.
type startCommand struct {
	plugin  *plugin
	request capture.Request
	build   func(capture.Request) (v1alpha1.Capture, error)
	opts    saveOptions
	lines   *lineFlags // nil for captures of packets
	packets *liveFlags // nil for traces
	keep    bool
}

// addFlags adds the flags that both commands have.
func (c *startCommand) addFlags(cmd *cobra.Command, kind, file string) {
	f, r := cmd.Flags(), &c.request
	f.StringVar(&r.TargetNamespace, "target-namespace", "", "Namespace of TARGET, if it differs from the namespace of the "+kind+"; only allowed in a hub namespace")
	f.BoolVar(&r.NoFollow, "no-follow", false, "Ignore Pods that join TARGET during the "+cmd.Name())
	f.StringVar(&r.RetainFor, "retain-for", "", "How long the cluster keeps the files after the "+cmd.Name()+", unless it is deleted (default 1h; if --for is above 30m, --for plus 1h; for a trace without --for 5h)")
	f.StringVar(&r.JobID, "job-id", "", "Suffix of the names of the Jobs: four characters of [a-z0-9] (default random)")
	f.StringVar(&r.Name, "name", "", "Name of the "+kind+" (default generated from TARGET)")
	f.BoolVar(&c.keep, "keep", false, "Do not delete the "+kind+" after its files are saved")
	addOutputFlags(cmd, &c.opts, file)
}

// addOutputFlags adds the flags that these commands and download have.
func addOutputFlags(cmd *cobra.Command, opts *saveOptions, file string) {
	f := cmd.Flags()
	f.StringVarP(&opts.out.Path, "output", "o", "", "File to save to, or - for standard output (default "+file+")")
	f.BoolVar(&opts.out.Separate, "keep-separate", false, "Save one file per Pod, in the directory that --output names")
	f.BoolVar(&opts.out.Force, "force", false, "Overwrite existing files")
	f.BoolVar(&opts.json, "json", false, "Print the summary as JSON")
}

// output completes opts with the form and the path of the file, and checks that it can be saved.
func (p *plugin) output(opts *saveOptions, name string, c v1alpha1.Capture) error {
	opts.out.Form = capture.FormOf(c)
	if opts.out.Path == "" {
		opts.out.Path = opts.out.DefaultPath(name, p.clock.Now())
	}
	opts.out.Stdout = p.streams.Out
	if opts.json && opts.out.Streams() {
		return errors.New("--json prints the summary of a saved file to standard output: name a file with -o, or omit --json")
	}
	return opts.out.Check()
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
	object, err := c.build(c.request)
	if err != nil {
		return err
	}
	if c.lines != nil {
		if err := c.lines.choose(c.plugin, &c.opts, capture.FormOf(object)); err != nil {
			return err
		}
	}
	if c.packets != nil {
		if err := c.packets.choose(c.plugin, &c.opts); err != nil {
			return err
		}
	}
	if err := c.plugin.output(&c.opts, c.request.Target.Name, object); err != nil {
		return err
	}
	// An interrupt does not cancel the request. The API server may create the object nevertheless, and the user would not know its name.
	// Main ends the process if the answer takes longer than exitTimeout.
	if err := conn.client.Create(context.WithoutCancel(ctx), object); err != nil {
		return &targetError{err, cmp.Or(c.request.TargetNamespace, conn.namespace)}
	}
	c.opts.stoppable, c.opts.remove = true, !c.keep
	return c.plugin.attach(ctx, conn, object, c.opts)
}
