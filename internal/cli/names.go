package cli

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/names"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// A stream asks for the names of new Pods and Services every namesInterval. In a large cluster that takes the API server and the user's line
// seconds: then it waits namesPause times as long.
const (
	namesInterval = 10 * time.Second
	namesPause    = 30
)

// addressNames are the names of the addresses in a capture of packets. A nil one has none.
type addressNames struct {
	*names.Directory

	live     bool        // asked before the capture had ended
	streamed atomic.Bool // asked again and again meanwhile
	first    chan struct{}
}

// newAddressNames begins to look up names, if the files of the capture are to be merged and have packets.
func newAddressNames(ctx context.Context, from names.Source, of v1alpha1.Capture) *addressNames {
	n := &addressNames{Directory: names.New(from, targetNamespace(of)), live: !of.CaptureStatus().Phase.Final(), first: make(chan struct{})}
	go func() {
		defer close(n.first)
		if n.live {
			n.Refresh(ctx, names.During(nil, nil, nil, true))
		}
	}()
	return n
}

// targetNamespace returns where the Pods of a capture are.
func targetNamespace(c v1alpha1.Capture) string {
	if ns := c.Common().TargetNamespace; ns != "" {
		return ns
	}
	return c.GetNamespace()
}

// final returns the names when c has ended.
func (n *addressNames) final(ctx context.Context, c v1alpha1.Capture) *pcapng.Names {
	if n == nil {
		return nil
	}
	<-n.first
	status := c.CaptureStatus()
	uids := make([]string, len(status.Pods))
	for i := range status.Pods {
		uids[i] = status.Pods[i].UID
	}
	n.Refresh(ctx, names.During(status.StartTime, status.CompletionTime, uids, n.streamed.Load()))
	return n.Names()
}

// stream sends names as they become known, until ctx ends.
func (n *addressNames) stream(ctx context.Context, send func(*pcapng.Names)) {
	n.streamed.Store(true)
	<-n.first
	for wait := namesInterval; ; {
		if news := n.News(); news != nil {
			send(news)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			began := time.Now()
			n.Refresh(ctx, names.During(nil, nil, nil, true))
			wait = max(namesInterval, namesPause*time.Since(began))
		}
	}
}

// addNote adds what the names lack to a report.
func (n *addressNames) addNote(r *report.Report) {
	if n == nil || r.Path == "" {
		return
	}
	if note := n.Note(); note != "" {
		r.Notes = append(r.Notes, note)
	}
}
