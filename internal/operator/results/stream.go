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
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// stream is one progress stream. One goroutine runs it and alone writes; one for each watched
// keeper feeds it.
type stream struct {
	h      *Handler
	kind   kind.Capture
	key    client.ObjectKey
	keeper Keeper
	late   Keeper // keeper, if the stream itself has to close it

	w     http.ResponseWriter
	out   *json.Encoder
	flush *http.ResponseController

	events  chan heard
	group   sync.WaitGroup
	watched map[string]*watched // by the target Pod's UID
	told    map[string]told     // what was last told of it
}

// watched is a keeper that is being watched, or was.
type watched struct {
	cancel context.CancelFunc
	// done says that the keeper has told the end. again is when to ask one that did not answer.
	done  bool
	again time.Time
	over  bool // the watch has ended
}

// heard is what came of a keeper: a line, or the end of its watch.
type heard struct {
	line  Line
	from  *watched
	ended bool
	err   error
}

// told is what of a line makes a change worth telling.
type told struct {
	phase  sondev1.Phase
	state  account.State
	counts account.Counts
	failed string
}

func (l Line) told() told {
	t := told{phase: l.Phase, failed: l.Error}
	if l.Account != nil {
		t.state, t.counts = l.Account.State, l.Account.Counts
	}
	return t
}

// watch asks the keeper of agent, unless it is being asked, has told the end, or did not answer just now.
func (st *stream) watch(ctx context.Context, uid string, agent *corev1.Pod) {
	if w := st.watched[uid]; w != nil && (!w.over || w.done || st.h.Clock.Now().Before(w.again)) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watched{cancel: cancel}
	st.watched[uid] = w
	addr := st.h.address(agent)
	line := Line{Pod: agent.Annotations[sondev1.AnnotationTargetPod], UID: uid, Node: agent.Spec.NodeName}
	keeper := st.keeper
	send := func(e heard) error {
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
			return send(heard{line: l, from: w})
		})
		// A failed send means that nobody listens, or that the status has told the end.
		_ = send(heard{line: line, from: w, ended: true, err: err})
	})
}

// hear tells what a keeper said.
func (st *stream) hear(e heard) error {
	if st.watched[e.line.UID] != e.from {
		return nil // forgotten meanwhile: the status has told the end
	}
	if !e.ended {
		return st.tell(e.line)
	}
	e.from.over, e.from.done = true, e.err == nil
	if e.err == nil {
		return nil
	}
	e.from.again = st.h.Clock.Now().Add(st.h.retry)
	l := e.line
	l.Phase = st.told[l.UID].phase
	if l.Phase == "" {
		l.Phase = sondev1.PhasePending
	}
	l.Error = fmt.Sprintf("the agent does not answer: %v", e.err)
	return st.tell(l)
}

// forget ends the watch of a Pod whose part is over: from now on its entry in the status counts.
func (st *stream) forget(uid string) {
	if w := st.watched[uid]; w != nil {
		w.cancel()
		delete(st.watched, uid)
	}
}

// wait returns when no watch runs any more. The context of the stream must have ended.
func (st *stream) wait() {
	st.group.Wait()
	if st.late != nil {
		st.late.Close()
	}
}

// tell writes a line if it says something new.
func (st *stream) tell(l Line) error {
	t := l.told()
	if old, ok := st.told[l.UID]; ok && old == t {
		return nil
	}
	st.told[l.UID] = t
	if err := st.deadline(); err != nil {
		return err
	}
	if err := st.out.Encode(l); err != nil {
		return fmt.Errorf("write progress: %w", err)
	}
	return st.flushed()
}

// blank writes a heartbeat.
func (st *stream) blank() error {
	if err := st.deadline(); err != nil {
		return err
	}
	if _, err := st.w.Write([]byte("\n")); err != nil {
		return fmt.Errorf("write heartbeat: %w", err)
	}
	return st.flushed()
}

// deadline gives the client time for what is written next; one that takes nothing holds no place for ever.
func (st *stream) deadline() error {
	err := st.flush.SetWriteDeadline(st.h.Clock.Now().Add(stallTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("set deadline: %w", err)
	}
	return nil
}

func (st *stream) flushed() error {
	if err := st.flush.Flush(); err != nil {
		return fmt.Errorf("flush progress: %w", err)
	}
	return nil
}
