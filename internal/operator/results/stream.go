package results

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// stream is one progress stream. One goroutine runs it and is the only one that writes. One goroutine for each watched
// keeper sends it events.
type stream struct {
	h      *Handler
	kind   kind.Capture
	key    client.ObjectKey
	keeper Keeper
	owned  Keeper // keeper, if the stream has to close it

	w     http.ResponseWriter
	out   *json.Encoder
	flush *http.ResponseController

	events   chan event
	group    sync.WaitGroup
	watches  map[string]*watch // by the target Pod's UID
	lastSent map[string]state  // by the target Pod's UID
}

// watch of a keeper, running or ended.
type watch struct {
	cancel context.CancelFunc
	ended  bool
	// done says that the keeper reported the end of its capture. Otherwise retryAt is when to watch again.
	done    bool
	retryAt time.Time
}

// event of a keeper: a line, or the end of its watch.
type event struct {
	line  Line
	from  *watch
	ended bool
	err   error
}

// state is the part of a line whose change is sent.
type state struct {
	phase  sondev1.Phase
	state  account.State
	counts account.Counts
	failed string
}

func (l Line) state() state {
	s := state{phase: l.Phase, failed: l.Error}
	if l.Account != nil {
		s.state, s.counts = l.Account.State, l.Account.Counts
	}
	return s
}

// watchKeeper watches the keeper of agent, unless a watch runs, the capture of its Pod is done, or the last attempt failed
// just now.
func (st *stream) watchKeeper(ctx context.Context, uid string, agent *corev1.Pod) {
	if w := st.watches[uid]; w != nil && (!w.ended || w.done || st.h.Clock.Now().Before(w.retryAt)) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel}
	st.watches[uid] = w
	addr := st.h.address(agent)
	line := Line{Pod: agent.Annotations[sondev1.AnnotationTargetPod], UID: uid, Node: agent.Spec.NodeName}
	keeper := st.keeper
	send := func(e event) error {
		select {
		case st.events <- e:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	st.group.Go(func() {
		defer cancel()
		err := keeper.Watch(ctx, addr, func(a account.Account) error {
			l := line
			l.Phase, l.Account = phaseOf(a), &a
			return send(event{line: l, from: w})
		})
		// The send fails if the stream has ended, or the status reports the end of this Pod.
		_ = send(event{line: line, from: w, ended: true, err: err})
	})
}

// handle sends a keeper's report.
func (st *stream) handle(ctx context.Context, e event) error {
	if st.watches[e.line.UID] != e.from {
		return nil // the status has reported the end of this Pod
	}
	if !e.ended {
		return st.send(ctx, e.line)
	}
	e.from.ended, e.from.done = true, e.err == nil
	if e.err == nil {
		return nil
	}
	e.from.retryAt = st.h.Clock.Now().Add(st.h.retry)
	l := e.line
	l.Phase = st.lastSent[l.UID].phase
	if l.Phase == "" {
		l.Phase = sondev1.PhasePending
	}
	l.Error = fmt.Sprintf("the agent does not answer: %v", e.err)
	return st.send(ctx, l)
}

// forget ends the watch of a Pod that has ended. From then on its entry in the status counts.
func (st *stream) forget(uid string) {
	if w := st.watches[uid]; w != nil {
		w.cancel()
		delete(st.watches, uid)
	}
}

// wait returns when all watches have ended. The context of the stream must have ended before.
func (st *stream) wait() {
	st.group.Wait()
	if st.owned != nil {
		st.owned.Close()
	}
}

// send writes a line if its state has changed.
func (st *stream) send(ctx context.Context, l Line) error {
	s := l.state()
	if last, ok := st.lastSent[l.UID]; ok && last == s {
		return nil
	}
	st.lastSent[l.UID] = s
	if err := st.h.extendDeadline(ctx, st.flush); err != nil {
		return err
	}
	if err := st.out.Encode(l); err != nil {
		return fmt.Errorf("write progress: %w", err)
	}
	return st.flushLine()
}

// heartbeat writes an empty line.
func (st *stream) heartbeat(ctx context.Context) error {
	if err := st.h.extendDeadline(ctx, st.flush); err != nil {
		return err
	}
	if _, err := st.w.Write([]byte("\n")); err != nil {
		return fmt.Errorf("write heartbeat: %w", err)
	}
	return st.flushLine()
}

func (st *stream) flushLine() error {
	if err := st.flush.Flush(); err != nil {
		return fmt.Errorf("flush progress: %w", err)
	}
	return nil
}
