// Package podstreams reads the growing files of all Pods of a running capture, each as a stream of its own. Pods may join at any time.
package podstreams

import (
	"context"
	"strings"
	"sync"

	"github.com/sonde-operator/sonde/internal/cli/results"
)

// Pod is one Pod and the file that is read of it.
type Pod struct {
	UID, Name, File string
	// Packets that the capture of the Pod had when the name of its file became known, with those that a ring of files has overwritten.
	Packets int64
}

// Options of a Group.
type Options struct {
	// Suffix of the names of the files that are read.
	Suffix string
	// Most is how many files are read at the same time; zero is no limit.
	Most int
	// Read reads the file of a Pod until its capture or the context has ended. The Group keeps the first error that comes before the end of
	// the context.
	Read func(ctx context.Context, pod Pod) error
}

// Group reads the files of one capture. New starts it, and Drain ends it.
type Group struct {
	o       Options
	ctx     context.Context //nolint:containedctx // of the readers of all Pods, which begin as Pods join
	cancel  context.CancelFunc
	running sync.WaitGroup
	places  chan struct{}

	mu   sync.Mutex
	read map[string]bool // whether a Pod is read, by the UID of all known Pods
	err  error
}

// New returns a Group that reads until ctx ends.
func New(ctx context.Context, o Options) *Group {
	ctx, cancel := context.WithCancel(ctx)
	g := &Group{o: o, ctx: ctx, cancel: cancel, read: map[string]bool{}}
	if o.Most > 0 {
		g.places = make(chan struct{}, o.Most)
	}
	return g
}

// Update adds a Pod. Its file is read once its name is known.
func (g *Group) Update(u results.Update) {
	g.mu.Lock()
	defer g.mu.Unlock()
	reading := g.read[u.UID]
	g.read[u.UID] = reading
	if reading || u.Account == nil || g.ctx.Err() != nil {
		return
	}
	for _, f := range u.Account.Files {
		if strings.HasSuffix(f.Name, g.o.Suffix) {
			g.read[u.UID] = true
			g.running.Go(func() {
				g.readPod(Pod{UID: u.UID, Name: u.Pod, File: f.Name, Packets: u.Account.Packets + u.Account.Overwritten})
			})
			return
		}
	}
}

// Pods is the number of Pods that were added.
func (g *Group) Pods() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.read)
}

// Drain waits until all files were read to their ends, or ctx has ended. It then stops the others, and returns the first error.
func (g *Group) Drain(ctx context.Context) error {
	drained := make(chan struct{})
	go func() {
		g.running.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-ctx.Done():
	}
	g.Stop()
	<-drained
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Stop ends all readers, and starts no more.
func (g *Group) Stop() {
	g.mu.Lock() // so that Update starts no reader while Drain waits for the last one
	defer g.mu.Unlock()
	g.cancel()
}

func (g *Group) readPod(pod Pod) {
	if g.places != nil {
		select {
		case g.places <- struct{}{}:
			defer func() { <-g.places }()
		case <-g.ctx.Done():
			return
		}
	}
	err := g.o.Read(g.ctx, pod)
	if err == nil || g.ctx.Err() != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
}
