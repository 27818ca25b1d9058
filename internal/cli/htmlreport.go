package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/htmlreport"
	"github.com/sonde-operator/sonde/internal/cli/packetview"
	"github.com/sonde-operator/sonde/internal/cli/report"
)

type reportCommand struct {
	plugin *plugin
	output string
	force  bool
}

func newReport(p *plugin) *cobra.Command {
	c := &reportCommand{plugin: p}
	cmd := &cobra.Command{
		Use:   "report FILE|NAME",
		Short: "Show a capture or a trace as one HTML page",
		Long: `Writes one HTML page about a capture or a trace. A browser opens it offline; it loads nothing and sends nothing.

Captures: a timeline, Pods and conversations, retransmissions, resets, round-trip times, DNS and HTTP. Traces: a timeline, time
by call and by file, slow and failed calls, connections, processes.

FILE is a .pcapng or .ndjson file, a directory of such files, or a directory of FLAP's files. If there is no such file, the
argument is a NAME, and the plugin downloads that capture or trace first, as the command download does: it waits until
the capture has ended.
` + nameHelp + `

The page has names, addresses, paths and URLs without their queries: check it before you share it.

Exit code: 0 the page is written; 3 the page is written, but the capture or trace is incomplete, and the page says why; 1 error.
Dropped packets and lost events alone do not change the exit code.`,
		Example: `  kubectl sonde report web.pcapng
  kubectl sonde report db.ndjson -o db.html
  kubectl sonde report trace/web-x7k2p -n shop -o web.html`,
		Args: oneArgument("a FILE, or " + nameArgument),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	f := cmd.Flags()
	f.StringVarP(&c.output, "output", "o", "", "File to write the page to, or - for standard output (default the name of the file or capture, with .html)")
	f.BoolVar(&c.force, "force", false, "Overwrite an existing file")
	return cmd
}

func (c *reportCommand) run(ctx context.Context, argument string) error {
	path := cmp.Or(c.output, pagePath(argument))
	if err := c.checkOutput(path); err != nil {
		return err
	}
	source, outcome := argument, htmlreport.Outcome{}
	_, err := os.Stat(argument)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !looksLikeFile(argument):
		dir, err := os.MkdirTemp("", "sonde-report.*")
		if err != nil {
			return fmt.Errorf("prepare the download: %w", err)
		}
		defer os.RemoveAll(dir)
		if source, outcome, err = c.download(ctx, argument, dir); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("open the capture or trace: %w", err)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(min(packetview.SoftMemoryLimit, debug.SetMemoryLimit(-1))))
	page, err := htmlreport.Read(ctx, source, label(argument), outcome)
	if err != nil {
		return err
	}
	if err := c.write(path, page); err != nil {
		return err
	}
	if page.Verdict.Level == htmlreport.LevelBad {
		return exitCode(report.ExitIncomplete)
	}
	return nil
}

// looksLikeFile reports whether an argument that is no file was meant to be one: names of captures have no such form.
func looksLikeFile(argument string) bool {
	switch filepath.Ext(argument) {
	case ".pcapng", ".ndjson", ".log", ".pcap":
		return true
	}
	return strings.HasPrefix(argument, ".") || strings.HasPrefix(argument, "/") || strings.Count(argument, "/") > 1
}

// label names the source in the page: a file without its directory, whose name is nobody else's business.
func label(argument string) string {
	if _, err := os.Stat(argument); err != nil {
		return argument
	}
	return filepath.Base(filepath.Clean(argument))
}

// pagePath returns the path for a page if the user gives none.
func pagePath(argument string) string {
	base := filepath.Base(filepath.Clean(argument))
	if strings.Trim(base, "./\\") == "" { // the current directory, or a root
		base = "report"
	}
	return strings.TrimSuffix(strings.TrimSuffix(base, ".pcapng"), ".ndjson") + ".html"
}

func (c *reportCommand) checkOutput(path string) error {
	if path == "-" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("check the output: %w", err)
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name a file with -o", path)
	case !c.force:
		return fmt.Errorf("%s exists: choose another name with -o, or overwrite it with --force", path)
	}
	return nil
}

// download saves a capture or trace in the directory. It returns its path and how it ended.
func (c *reportCommand) download(ctx context.Context, name, dir string) (path string, outcome htmlreport.Outcome, err error) {
	p := c.plugin
	conn, object, err := p.find(ctx, name)
	if err != nil {
		fmt.Fprintf(p.streams.ErrOut, "There is no file %s, so the plugin looked for a capture or trace of this name.\n", name)
		return "", outcome, err
	}
	opts := saveOptions{out: capture.Output{Path: filepath.Join(dir, "download")}}
	if err := p.output(&opts, object.GetName(), object); err != nil {
		return "", outcome, err
	}
	r, _, err := p.collect(ctx, conn, object, opts)
	if err != nil {
		return "", outcome, err
	}
	if r.Path == "" {
		return "", outcome, fmt.Errorf("nothing was saved of %s, so there is nothing to report: %s", name, strings.Join(r.Problems, "; "))
	}
	outcome = htmlreport.Outcome{Known: true, Complete: r.Complete, Limited: r.Limited(), Problems: r.Problems, Notes: r.Notes}
	if r.Total.PacketCounts != nil {
		outcome.Overwritten = r.Total.Overwritten
	}
	return r.Path, outcome, nil
}

// write writes the page to a new file beside the path, so that a page appears there only when it is whole.
func (c *reportCommand) write(path string, page *htmlreport.Page) error {
	if path == "-" {
		return htmlreport.Write(c.plugin.streams.Out, page)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".sonde-report.*.part") // readable by its owner alone
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer os.Remove(f.Name())
	err = writeAll(f, page)
	if closed := f.Close(); err == nil && closed != nil {
		err = fmt.Errorf("write the report: %w", closed)
	}
	if err != nil {
		return err
	}
	if err := c.checkOutput(path); err != nil { // it may exist by now
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	fmt.Fprintf(c.plugin.streams.ErrOut, "Saved to %s. Open it in a browser.\n", path)
	return nil
}

func writeAll(w io.Writer, page *htmlreport.Page) error {
	out := bufio.NewWriter(w)
	if err := htmlreport.Write(out, page); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
