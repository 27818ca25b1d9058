package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/audit"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// Line of the progress stream: the current state of one Pod. An empty line is a heartbeat.
type Line struct {
	Pod   string        `json:"pod"`
	UID   string        `json:"uid"`
	Node  string        `json:"node,omitempty"`
	Phase sondev1.Phase `json:"phase"`
	// Account is absent if the Pod's agent could not be reached. Error then says why.
	Account *account.Account `json:"account,omitempty"`
	Error   string           `json:"error,omitempty"`
}

// progress streams a line for each Pod at once and for each change, until the capture has ended. Pods that have ended are
// reported from the status, the others by their keepers.
func (h *Handler) progress(w http.ResponseWriter, r *http.Request, s session) error {
	keeper, err := h.keeper(r.Context(), s.capture)
	// Without keys, before the first Job and after the last, the status is still reported.
	if err != nil && !isFailure(err) {
		return err
	}
	if keeper != nil {
		defer keeper.Close()
	}
	ctx, cancel := context.WithCancel(r.Context())
	st := &stream{
		h: h, kind: s.kind, key: client.ObjectKeyFromObject(s.capture), uid: s.capture.GetUID(), keeper: keeper,
		namespace: s.capture.Common().TargetNamespace, user: s.who.Username,
		out: json.NewEncoder(w), flush: http.NewResponseController(w), w: w,
		events: make(chan event), watches: map[string]*watch{}, lastSent: map[string]state{},
	}
	// Only a deadline ends a write to a client that does not read.
	stop := context.AfterFunc(r.Context(), func() { _ = st.flush.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	defer st.wait() // the keeper's client is closed after the last watch has ended
	defer cancel()
	ctrl.LoggerFrom(r.Context()).Info("Serving progress", audit.Key, audit.ProgressServed, "captureUID", s.capture.GetUID())
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	if err := st.run(ctx); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil
}

// run sends lines until the capture has ended, and returns nil then. It returns an error if the client has gone or lost its
// right.
func (st *stream) run(ctx context.Context) error {
	poll, heartbeat := st.h.Clock.NewTicker(st.h.poll), st.h.Clock.NewTicker(st.h.heartbeat)
	defer poll.Stop()
	defer heartbeat.Stop()
	for {
		over, err := st.observe(ctx)
		if over || err != nil {
			return err
		}
		if err := st.await(ctx, poll.C(), heartbeat.C()); err != nil {
			return err
		}
	}
}

// await sends the keepers' reports until the next poll.
func (st *stream) await(ctx context.Context, poll, heartbeat <-chan time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poll:
			return nil
		case <-heartbeat:
			if err := st.heartbeat(ctx); err != nil {
				return err
			}
		case e := <-st.events:
			if err := st.handle(ctx, e); err != nil {
				return err
			}
		}
	}
}

// observe reads the capture and its agents from the cache. It sends the Pods that have ended, and watches the keepers that
// run. over says that the capture has ended.
func (st *stream) observe(ctx context.Context) (over bool, err error) {
	capture := st.kind.New()
	err = st.h.Cache.Get(ctx, st.key, capture)
	switch {
	case apierrors.IsNotFound(err), err == nil && capture.GetUID() != st.uid: // a later one of its name may be for another namespace
		return false, errors.New("the capture was deleted")
	case err != nil:
		return false, fmt.Errorf("get %s %s: %w", strings.ToLower(st.kind.Name), st.key, err)
	}
	if capture, err = st.h.whole(ctx, st.kind, capture); err != nil {
		return false, err
	}
	status, ended := capture.CaptureStatus(), map[string]bool{}
	for i := range status.Pods {
		p := &status.Pods[i]
		if ended[p.UID] = p.Phase.Final(); ended[p.UID] {
			st.forget(p.UID)
		}
		if st.watches[p.UID] == nil {
			if err := st.send(ctx, lineOf(p)); err != nil {
				return false, err
			}
		}
	}
	if status.Phase.Final() {
		return true, nil
	}
	return false, st.watchAgents(ctx, capture, ended)
}

// watchAgents begins to watch each keeper that runs, unless its Pod has ended.
func (st *stream) watchAgents(ctx context.Context, capture sondev1.Capture, ended map[string]bool) error {
	agents, err := st.h.servingOf(ctx, capture)
	if err != nil {
		return err
	}
	var noPlace error // why no further keeper can be watched in this round
	for _, agent := range agents {
		uid := string(agent.Target().UID)
		if uid == "" || ended[uid] {
			continue
		}
		if err := st.connect(ctx, capture); err != nil {
			return err
		}
		if st.keeper == nil || !st.mayWatch(uid) {
			continue
		}
		a := agent.Expand()
		if noPlace == nil {
			noPlace = st.watchKeeper(ctx, uid, a)
		}
		if noPlace != nil {
			if err := st.refuse(ctx, uid, a, noPlace); err != nil {
				return err
			}
		}
	}
	return nil
}

// connect connects to the keepers for a stream that began before the capture had its keys.
func (st *stream) connect(ctx context.Context, capture sondev1.Capture) error {
	if st.keeper != nil {
		return nil
	}
	keeper, err := st.h.keeper(ctx, capture)
	if isFailure(err) {
		return nil // no keys yet, or no longer
	}
	if err != nil {
		return err
	}
	st.keeper, st.owned = keeper, keeper
	return nil
}

// lineOf turns an entry of the status into a line.
func lineOf(p *sondev1.PodResult) Line {
	l := Line{Pod: p.Name, UID: p.UID, Node: p.Node, Phase: p.Phase}
	if p.Phase == "" {
		l.Phase = sondev1.PhasePending
	}
	if p.Phase == sondev1.PhaseFailed {
		l.Error = p.Reason
		if p.Message != "" {
			l.Error += ": " + p.Message
		}
		return l
	}
	if !p.Phase.Final() {
		return l
	}
	a := account.Account{
		Processes: processes(p.Processes),
		State:     account.StateDone, Engine: p.Engine, EngineMessage: p.EngineMessage, Reason: p.Reason,
		Complete: p.Phase == sondev1.PhaseCompleted, Message: p.Message,
		Counts: account.Counts{
			Packets: p.Packets, Bytes: p.Bytes, Truncated: p.Truncated, Overwritten: p.Overwritten,
			Seen:          p.Packets + p.Overwritten + p.Dropped.Total() + p.Events + p.LostEvents(),
			DroppedKernel: p.Dropped.Kernel, DroppedRing: p.Dropped.Ring, DroppedWriter: p.Dropped.Writer,
		},
		Events: p.Events, Lost: p.Lost,
	}
	for _, f := range p.Files[:min(len(p.Files), account.MaxFiles)] {
		a.Files = append(a.Files, account.File{Name: f.Name, Bytes: f.Bytes})
	}
	a.Version = a.LowestVersion()
	l.Account = &a
	return l
}

// phaseOf returns the phase of a running probe by its account.
func phaseOf(a account.Account) sondev1.Phase {
	switch a.State {
	case account.StateCapturing:
		return sondev1.PhaseCapturing
	case account.StateDone:
		return outcome.PhaseOfDone(&a)
	case account.StateStarting:
	}
	return sondev1.PhasePending
}

// processes returns the counts of a status as an account has them.
func processes(p *sondev1.ProcessCounts) *account.Processes {
	if p == nil {
		return nil
	}
	return &account.Processes{Named: p.Named, None: p.None, Unknown: p.Unknown, Message: p.Message}
}
