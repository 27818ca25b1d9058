package cli

import (
	"context"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// companion shows or writes what a capture records while it runs.
type companion interface {
	// update adds a Pod, or the name of its file.
	update(results.Update)
	// finish returns when the last records of an ended capture have arrived, or soon after the end of ctx.
	finish(ctx context.Context)
	// addNote adds a note to the report if records are missing from what was shown.
	addNote(saved capture.Saved, r *report.Report)
}

// companions of one capture.
type companions struct {
	all    []companion
	stream *packetStream // nil if no packets are written
}

// newCompanions starts what opts ask for.
func (p *plugin) newCompanions(ctx context.Context, a *session, c v1alpha1.Capture, opts saveOptions) (*companions, error) {
	all := &companions{}
	if opts.lines != linesNone {
		all.all = append(all.all, p.newEventLines(ctx, a.endpoint, a.display, opts))
	}
	table, ok := a.display.(*topView)
	if ok {
		table.start(ctx, p, a.endpoint, c, opts.stream)
	}
	if opts.stream != nil {
		stream, err := p.newPacketStream(ctx, a.endpoint, c, *opts.stream)
		if err != nil {
			return nil, err
		}
		if a.addresses != nil {
			go a.addresses.stream(ctx, stream.stream.AddNames)
		}
		all.all, all.stream = append(all.all, stream), stream
	}
	if ok { // it ends after the stream that it counts
		all.all = append(all.all, table)
	}
	return all, nil
}

func (a *companions) update(u results.Update) {
	for _, c := range a.all {
		c.update(u)
	}
}

// addEnded adds the Pods that ended before there were live counts with the names of their files.
func (a *companions) addEnded(pods []v1alpha1.PodResult) {
	for i := range pods {
		a.update(filesOf(&pods[i]))
	}
}

func (a *companions) finish(ctx context.Context) {
	for _, c := range a.all {
		c.finish(ctx)
	}
}

func (a *companions) addNotes(saved capture.Saved, r *report.Report) {
	for _, c := range a.all {
		c.addNote(saved, r)
	}
}

// filesOf is an update with the files of a Pod's result.
func filesOf(p *v1alpha1.PodResult) results.Update {
	u := results.Update{Pod: p.Name, UID: p.UID, Account: &account.Account{Counts: account.Counts{Packets: p.Packets, Overwritten: p.Overwritten}}}
	for _, f := range p.Files {
		u.Account.Files = append(u.Account.Files, account.File{Name: f.Name, Bytes: f.Bytes})
	}
	return u
}
