package intercept

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

const (
	// shownRequests is how many of the last requests a terminal shows.
	shownRequests = 8
	// maxPods whose counters are kept, and maxUID bytes of a Pod's UID. The status lists 500 Pods, but a Stowaway that was taken over may
	// report any number.
	maxPods, maxUID = 1000, 64
)

// State is what is known about a running intercept. Its methods may be called at the same time.
type State struct {
	mu       sync.Mutex
	object   *v1alpha1.InterceptRequest
	since    time.Time
	counters map[string]tunnel.Counters // by Pod UID
	requests []tunnel.Request
	tunnel   error
	refused  string
	ending   string
}

// NewState returns the state of a request that was created at that time.
func NewState(o *v1alpha1.InterceptRequest, now time.Time) *State {
	return &State{object: o, since: now, counters: map[string]tunnel.Counters{}}
}

// SetObject replaces the InterceptRequest.
func (s *State) SetObject(o *v1alpha1.InterceptRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object = o
}

// StowawayKey returns the key that Stowaway must have, or nothing while it is not known.
func (s *State) StowawayKey() tunnel.PublicKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return tunnel.PublicKey(s.object.Status.StowawayKey)
}

// StowawayNamespace is where Stowaway runs; empty if the operator does not say.
func (s *State) StowawayNamespace() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.object.Status.StowawayNamespace
}

// SetTunnel sets why the tunnel is not connected; nil if it is.
func (s *State) SetTunnel(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tunnel = err
}

// SetRefused keeps why the developer's process took no connection.
func (s *State) SetRefused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = err.Error()
}

// SetEnding shows that the intercept is ended.
func (s *State) SetEnding(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = text
}

// Add adds a Report.
func (s *State) Add(r *tunnel.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.counters[r.Pod]
	if c, ok := r.Routes[string(s.object.UID)]; ok && len(r.Pod) <= maxUID && (known || len(s.counters) < maxPods) {
		s.counters[r.Pod] = c
	}
	s.requests = append(s.requests, r.Requests...)
	s.requests = slices.Clone(s.requests[max(0, len(s.requests)-shownRequests):])
}

// View returns what to show. requests says whether the last requests are part of it.
func (s *State) View(now time.Time, requests bool) live.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.object
	v := live.View{
		Title:  fmt.Sprintf("%s/%s (%s to %s)", o.Namespace, o.Name, Target(o), Address(o)),
		Status: s.status(), Clock: now.Sub(s.since).Truncate(time.Second).String(), Unit: live.Requests,
	}
	var passed, overlaps uint64
	for i := range o.Status.Pods {
		p := &o.Status.Pods[i]
		c := s.counters[p.UID]
		shown := live.Pod{
			Name: p.Name, Node: p.Node, State: "Waiting", Count: max(p.Matched, int64(c.Matched)), Lost: max(p.Failed, int64(c.Failed)),
			Bytes: max(p.BytesToClient+p.BytesFromClient, int64(c.BytesToClient+c.BytesFromClient)),
		}
		passed += max(uint64(max(0, p.Passed)), c.Passed)
		overlaps += max(uint64(max(0, p.Overlaps)), c.Overlaps)
		if p.Active {
			shown.State = "Active"
		}
		if p.Message != "" {
			v.Notes = append(v.Notes, p.Name+": "+p.Message)
		}
		v.Pods = append(v.Pods, shown)
	}
	slices.SortFunc(v.Pods, func(a, b live.Pod) int { return cmp.Compare(a.Name, b.Name) })
	v.Notes = append(s.problems(), v.Notes...)
	if requests {
		if passed > 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("%d requests went to the app", passed))
		}
		if overlaps > 0 {
			v.Notes = append(v.Notes, fmt.Sprintf("%d requests matched, but an older InterceptRequest took them", overlaps))
		}
		for _, r := range slices.Backward(s.requests) {
			v.Notes = append(v.Notes, r.Time.Local().Format(time.TimeOnly)+"  "+RequestLine(r))
		}
	}
	return v
}

// status is the phase, or what it waits for.
func (s *State) status() string {
	if s.ending != "" {
		return s.ending
	}
	phase := string(cmp.Or(s.object.Status.Phase, v1alpha1.InterceptPending))
	if s.object.Status.Phase == v1alpha1.InterceptActive {
		return phase
	}
	for _, c := range s.object.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			return phase + ": " + c.Reason
		}
	}
	return phase
}

// problems are the messages of conditions that do not hold, and of both ends of the tunnel.
func (s *State) problems() []string {
	var notes []string
	for _, c := range s.object.Status.Conditions {
		if c.Status != metav1.ConditionTrue && c.Message != "" {
			notes = append(notes, c.Message)
		}
	}
	if s.tunnel != nil {
		notes = append(notes, strings.ReplaceAll(s.tunnel.Error(), "\n", ". ")+"; connecting again")
	}
	if s.refused != "" {
		notes = append(notes, s.refused)
	}
	return notes
}

// Target names the workload and its port.
func Target(o *v1alpha1.InterceptRequest) string {
	_, target := o.AgentTarget()
	return fmt.Sprintf("%s port %d", target, o.Spec.TargetContainerPort)
}

// maxConditions in characters. A match may have 4 KiB, and would make all lines of a list as long.
const maxConditions = 100

// Conditions names the requests that a match selects.
func Conditions(m *v1alpha1.InterceptMatch) string {
	if m == nil {
		return "all"
	}
	var all []string
	add := func(what string, t *v1alpha1.TextMatch) {
		switch {
		case t == nil:
		case t.Exact != nil:
			all = append(all, what+"="+*t.Exact)
		case t.Prefix != nil:
			all = append(all, what+"="+*t.Prefix+"...")
		case t.Regex != nil:
			all = append(all, what+"~"+*t.Regex)
		}
	}
	add("method", m.Method)
	add("path", m.Path)
	for i := range m.Headers {
		add(m.Headers[i].Name, &m.Headers[i].TextMatch)
	}
	add("server-name", m.ServerName)
	separator := ","
	if m.Require == v1alpha1.MatchAny {
		separator = " or "
	}
	return table.Truncate(strings.Join(all, separator), maxConditions)
}

// RequestLine returns one line about a request: where it came, and who answered it.
func RequestLine(r tunnel.Request) string {
	answer := "app"
	if r.Client {
		answer = "you"
	}
	status := "-"
	if r.Status != 0 {
		status = fmt.Sprint(r.Status)
	}
	_, pod, found := strings.Cut(r.Pod, "/")
	if !found {
		pod = r.Pod
	}
	return fmt.Sprintf("%s  %s %s  %s  by %s", pod, r.Method, r.Path, status, answer)
}
