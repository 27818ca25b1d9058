package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	uid    types.UID // of the capture
	keeper Keeper
	owned  Keeper // keeper, if the stream has to close it

	namespace, user string // for which its watches of keepers count

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

// mayWatch reports whether the keeper of a Pod may be watched now: unless a watch runs, the capture of the Pod is done, or the last
// attempt failed just now.
func (st *stream) mayWatch(uid string) bool {
	w := st.watches[uid]
	return w == nil || w.ended && !w.done && !st.h.Clock.Now().Before(w.retryAt)
}

// watchKeeper watches the keeper of agent. It returns a failure if there is no place for the watch.
func (st *stream) watchKeeper(ctx context.Context, uid string, agent *corev1.Pod) error {
	held, own, err := st.h.watches.hold(ctx, st.namespace, st.user)
	if err != nil {
		return err
	}
	held, cancel := context.WithCancel(held)
	w := &watch{cancel: cancel}
	st.watches[uid] = w
	addr := st.h.address(agent)
	line := lineOfAgent(uid, agent)
	keeper := st.keeper
	send := func(ctx context.Context, e event) error {
		select {
		case st.events <- e:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	st.group.Go(func() {
		err := keeper.Watch(held, addr, func(a account.Account) error {
			l := line
			l.Phase, l.Account = phaseOf(a), &a
			return send(held, event{line: l, from: w})
		})
		if errors.Is(context.Cause(held), errYield) {
			err = full(http.StatusServiceUnavailable, "the place of this watch was given to a namespace that has fewer %s open", st.h.watches.name)
		}
		cancel()
		st.h.watches.leave(own)
		// The send fails if the stream has ended. The event is ignored if the status reports the end of this Pod.
		_ = send(ctx, event{line: line, from: w, ended: true, err: err})
	})
	return nil
}

// refuse reports that the keeper of agent cannot be watched now. It is tried again as if the watch had ended.
func (st *stream) refuse(ctx context.Context, uid string, agent *corev1.Pod, why error) error {
	w := &watch{cancel: func() {}}
	st.watches[uid] = w
	return st.handle(ctx, event{line: lineOfAgent(uid, agent), from: w, ended: true, err: why})
}

// lineOfAgent returns the line of an agent's Pod without its state.
func lineOfAgent(uid string, agent *corev1.Pod) Line {
	return Line{Pod: agent.Annotations[sondev1.AnnotationTargetPod], UID: uid, Node: agent.Spec.NodeName}
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
	if isFailure(e.err) { // of places
		l.Error = e.err.Error()
	}
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
