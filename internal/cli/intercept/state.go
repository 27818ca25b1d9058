package intercept

import (
	"cmp"
	"errors"
	"fmt"
	"math"
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
	// maxPods whose counters are kept, and maxUID and maxName bytes of a Pod's UID and name. The status lists up to 500 Pods, but a Stowaway
	// that was taken over may report any number.
	maxPods, maxUID, maxName = 1000, 64, 253
)

// State is what is known about a running intercept. Its methods may be called at the same time.
type State struct {
	mu       sync.Mutex
	object   *v1alpha1.InterceptRequest
	since    time.Time
	counters map[string]tunnel.Counters // by Pod UID
	traffic  map[string]*Traffic        // by Pod UID
	// unlisted is the traffic of Pods that the status does not list yet, by name.
	unlisted map[string]*Traffic
	// gone are the last entries of Pods that the status lists no more, by UID.
	gone     map[string]v1alpha1.InterceptPod
	requests []tunnel.Request // in the order of time
	// last is the number of each Pod's newest request, by UID. omitted requests came to this machine, but are in no report.
	last    map[string]uint64
	omitted uint64
	// tunnel is why it is, or was, not connected. tunnelSince and connectedSince are when View first saw the one and the other. lost: View
	// shows the loss.
	connected                   bool
	tunnel                      error
	tunnelSince, connectedSince time.Time
	lost                        bool
	refused                     string
	// cut requests, and how many of them a log has had at cutLogged.
	cut, inLog int
	cutLogged  time.Time
	// ending is shown in place of the phase, and final in place of all messages after the end.
	ending string
	ended  bool
	final  string
}

// shownLoss is how long the tunnel is not connected before that is shown: it connects again at once, unless the intercept has ended.
const shownLoss = time.Second

// cutInterval is the shortest time between two lines of a log about requests that were cut.
const cutInterval = 10 * time.Second

// NewState returns the state of a request that was created at that time.
func NewState(o *v1alpha1.InterceptRequest, now time.Time) *State {
	return &State{
		object: o, since: now, counters: map[string]tunnel.Counters{},
		traffic: map[string]*Traffic{}, unlisted: map[string]*Traffic{}, gone: map[string]v1alpha1.InterceptPod{}, last: map[string]uint64{},
	}
}

// SetObject replaces the InterceptRequest.
func (s *State) SetObject(o *v1alpha1.InterceptRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.object.Status.Pods
	if o.Ended() && len(o.Status.Pods) == 0 { // its Pods are not gone
		s.object = o.DeepCopy()
		s.object.Status.Pods = before
		return
	}
	s.object = o
	for i := range before {
		s.gone[before[i].UID] = before[i]
	}
	for i := range o.Status.Pods {
		p := &o.Status.Pods[i]
		delete(s.gone, p.UID)
		if t := s.unlisted[p.Name]; t != nil && s.traffic[p.UID] == nil {
			s.traffic[p.UID] = t
			delete(s.unlisted, p.Name)
		}
	}
}

// TrafficOf returns the counts of a Pod, namespace/name.
func (s *State) TrafficOf(pod string) *Traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, name, _ := strings.Cut(pod, "/")
	of, key := s.traffic, s.uid(name)
	if key == "" {
		of, key = s.unlisted, name
		if len(name) > maxName || of[name] == nil && len(of) >= maxPods {
			return &Traffic{}
		}
	}
	if of[key] == nil {
		of[key] = &Traffic{}
	}
	return of[key]
}

// uid returns the UID of a Pod that the status lists, or has listed.
func (s *State) uid(name string) string {
	for i := range s.object.Status.Pods {
		if s.object.Status.Pods[i].Name == name {
			return s.object.Status.Pods[i].UID
		}
	}
	for uid := range s.gone {
		if s.gone[uid].Name == name {
			return uid
		}
	}
	return ""
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
	if s.connected && !errors.Is(err, errNotKnown) {
		s.tunnelSince = time.Time{}
	}
	s.connected, s.connectedSince = err == nil, time.Time{}
	if err != nil {
		s.tunnel = err
	}
}

// Connected reports whether the tunnel is connected.
func (s *State) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected && !s.lost
}

// observeTunnel sets whether the loss of the tunnel is shown. If Stowaway does not know the intercept, each new connection ends at once, so
// it must last to end the loss.
func (s *State) observeTunnel(now time.Time) {
	switch {
	case !s.connected && s.tunnel == nil: // it was never tried
	case !s.connected:
		if s.tunnelSince.IsZero() {
			s.tunnelSince = now
		}
		s.lost = now.Sub(s.tunnelSince) >= shownLoss
	default:
		if s.connectedSince.IsZero() {
			s.connectedSince = now
		}
		if !s.lost || !errors.Is(s.tunnel, errNotKnown) || now.Sub(s.connectedSince) >= settled {
			s.lost, s.tunnel, s.tunnelSince = false, nil, time.Time{}
		}
	}
}

// Unanswered says what to do about an error of the connection to the developer's process.
func Unanswered(err error) string {
	return err.Error() + ". Start your process; until then the app answers, if it listens"
}

// SetRefused keeps why the developer's process took no connection; nil if it took the last one. It reports whether the process had refused
// the one before.
func (s *State) SetRefused(err error) (before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.refused = s.refused != "", ""
	if err != nil {
		s.refused = Unanswered(err)
	}
	return before
}

// AddCut adds requests that this machine has cut, because the developer's process does not read them.
func (s *State) AddCut(requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut += requests
}

// SetEnding shows that the intercept is about to end.
func (s *State) SetEnding(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = text
}

// SetEnded shows that the intercept has ended, and what to do now.
func (s *State) SetEnded(text, final string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending, s.ended, s.final = text, true, final
}

// Refused reports whether the developer's process took no connection when that was last tried.
func (s *State) Refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused != ""
}

// Add adds a Report. It returns how many requests were left out of the Reports since the one before of this Pod.
func (s *State) Add(r *tunnel.Report) (omitted uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.counters[r.Pod]
	if c, ok := r.Routes[string(s.object.UID)]; ok && len(r.Pod) <= maxUID && (known || len(s.counters) < maxPods) {
		s.counters[r.Pod] = c
	}
	if last, known := s.last[r.Pod]; len(r.Pod) <= maxUID && (known || len(s.last) < maxPods) {
		s.last[r.Pod], omitted = gaps(last, r.Requests)
		s.omitted += min(omitted, math.MaxUint64-s.omitted)
	}
	s.requests = append(s.requests, r.Requests...)
	slices.SortStableFunc(s.requests, func(a, b tunnel.Request) int { return a.Time.Compare(b.Time) }) // each Pod has a Report of its own
	s.requests = slices.Clone(s.requests[max(0, len(s.requests)-shownRequests):])
	return omitted
}

// gaps counts the requests of a Pod that are missing between those after the last one, and returns the new last one. The numbers of a new
// carrier begin at 1.
func gaps(last uint64, requests []tunnel.Request) (newest, missing uint64) {
	for i := range requests {
		n := requests[i].Number
		switch {
		case n == 0: // an older carrier or Stowaway
			continue
		case n <= last:
			last = 0
		}
		missing += min(n-last-1, math.MaxInt64-missing) // a carrier that was taken over may send any number
		last = n
	}
	return last, missing
}

// View returns what to show. requests says whether the last requests are part of it.
func (s *State) View(now time.Time, requests bool) live.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.object
	s.observeTunnel(now)
	v := live.View{
		Title:  fmt.Sprintf("%s/%s (%s to %s)", o.Namespace, o.Name, Target(o), Address(o)),
		Status: s.status(), Clock: now.Sub(s.since).Truncate(time.Second).String(), Unit: live.Requests,
	}
	passed, overlaps := s.addPods(&v)
	v.Notes = append(s.problems(requests), v.Notes...)
	if n := s.shownCut(now, !requests); n > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("cut: %s, because the process at %s did not read in time, and more than %d MiB would have waited here",
			requestsText(uint64(n)), Address(o), maxUnread>>20))
	}
	if requests {
		if passed > 0 {
			v.Notes = append(v.Notes, requestsText(passed)+" went to the app")
		}
		if overlaps > 0 {
			v.Notes = append(v.Notes, requestsText(overlaps)+" matched, but an older InterceptRequest took them")
		}
		if s.omitted > 0 {
			v.Notes = append(v.Notes, "not in the list: "+requestsText(s.omitted)+" by you")
		}
		for _, r := range slices.Backward(s.requests) {
			v.Log = append(v.Log, r.Time.Local().Format(time.TimeOnly)+"  "+RequestLine(r))
		}
		return v
	}
	// A log gets each of these once.
	switch {
	case passed == 0:
	case o.Spec.Match == nil:
		checks := "Health checks"
		if o.Spec.Probes == v1alpha1.InterceptClient {
			checks = "Health checks by HTTP and gRPC"
		}
		v.Notes = append(v.Notes, checks+" go to the app, as do requests that your process does not take")
	default:
		v.Notes = append(v.Notes, "Other requests go to the app")
	}
	if overlaps > 0 {
		v.Notes = append(v.Notes, "Requests matched, but an older InterceptRequest took them")
	}
	return v
}

// shownCut returns how many requests were cut. A log has a line for each number, so it gets a new one only now and then, and at the end.
func (s *State) shownCut(now time.Time, log bool) int {
	if !log {
		return s.cut
	}
	if s.cut > s.inLog && (s.ended || now.Sub(s.cutLogged) >= cutInterval) {
		s.inLog, s.cutLogged = s.cut, now
	}
	return s.inLog
}

// addPods adds the Pods and their messages. It returns how many requests went to the app, and how many another intercept took.
func (s *State) addPods(v *live.View) (passed, overlaps uint64) {
	count := func(p *v1alpha1.InterceptPod) {
		c := s.counters[p.UID]
		passed += max(uint64(max(0, p.Passed)), c.Passed)
		overlaps += max(uint64(max(0, p.Overlaps)), c.Overlaps)
	}
	var messages []string
	say := map[string][]string{} // Pods by message
	for i := range s.object.Status.Pods {
		p := &s.object.Status.Pods[i]
		count(p)
		v.Pods = append(v.Pods, s.row(p))
		if p.Message != "" && !s.over() {
			if say[p.Message] == nil {
				messages = append(messages, p.Message)
			}
			say[p.Message] = append(say[p.Message], p.Name)
		}
	}
	for _, m := range messages {
		who := say[m][0]
		if n := len(say[m]); n > 1 {
			who = fmt.Sprintf("%d Pods", n)
		}
		v.Notes = append(v.Notes, who+": "+m)
	}
	slices.SortFunc(v.Pods, func(a, b live.Pod) int { return cmp.Compare(a.Name, b.Name) })
	rest := live.Pod{Name: "others", State: "Gone"}
	for _, t := range s.unlisted {
		rest.Count, rest.Bytes, rest.Lost = rest.Count+t.requests.Load(), rest.Bytes+t.bytes.Load(), rest.Lost+t.failed.Load()
	}
	for _, p := range s.gone {
		count(&p)
		row := s.row(&p)
		rest.Count, rest.Bytes, rest.Lost = rest.Count+row.Count, rest.Bytes+row.Bytes, rest.Lost+row.Lost
	}
	if rest.Count > 0 || rest.Lost > 0 {
		v.Pods = append(v.Pods, rest)
	}
	return passed, overlaps
}

// row has the newest counts of a Pod: those of the status, of its carrier's last Report, or of this process.
func (s *State) row(p *v1alpha1.InterceptPod) live.Pod {
	c, seen := s.counters[p.UID], cmp.Or(s.traffic[p.UID], &Traffic{})
	row := live.Pod{
		Name: p.Name, Node: p.Node, State: "Waiting",
		Count: max(p.Matched, int64(c.Matched), seen.requests.Load()), Lost: max(p.Failed, int64(c.Failed), seen.failed.Load()),
		Bytes: max(p.BytesToClient+p.BytesFromClient, int64(c.BytesToClient+c.BytesFromClient), seen.bytes.Load()),
	}
	switch {
	case s.ended:
		row.State = "Ended"
	case p.Active && !s.lost:
		row.State = "Active"
	}
	return row
}

func requestsText(n uint64) string {
	if n == 1 {
		return "1 request"
	}
	return fmt.Sprintf("%d requests", n)
}

// over reports that the messages of the intercept are those of its end.
func (s *State) over() bool { return s.ending != "" || s.object.Ended() }

// status is the phase, or what it waits for.
func (s *State) status() string {
	if s.ending != "" {
		return s.ending
	}
	phase := string(cmp.Or(s.object.Status.Phase, v1alpha1.InterceptPending))
	switch {
	case s.object.Status.Phase != v1alpha1.InterceptActive:
	case s.lost: // the phase is older
		return string(v1alpha1.InterceptLost) + ": this machine is not connected"
	default:
		return phase
	}
	for _, c := range s.object.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			return phase + ": " + c.Reason
		}
	}
	return phase
}

// problems are the messages of conditions that do not hold, and of both ends of the tunnel. screen is View's requests.
func (s *State) problems(screen bool) []string {
	if s.final != "" {
		return []string{s.final}
	}
	if s.over() {
		return nil
	}
	var notes []string
	for i := range s.object.Status.Conditions {
		if m := s.problem(&s.object.Status.Conditions[i]); m != "" && !slices.Contains(notes, m) {
			notes = append(notes, m)
		}
	}
	if s.lost {
		notes = append(notes, strings.ReplaceAll(s.tunnel.Error(), "\n", ". ")+"; connecting again")
	}
	if s.refused != "" && screen { // a log gets a line each time
		notes = append(notes, s.refused)
	}
	return notes
}

// problem is the message of a condition that does not hold, for the user of this machine. The status is also for others.
func (s *State) problem(c *metav1.Condition) string {
	switch {
	case c.Status == metav1.ConditionTrue:
		return ""
	case c.Reason == v1alpha1.ReasonClientAwaited:
		return "this machine is not connected yet"
	case c.Reason == v1alpha1.ReasonClientLost:
		return "this machine does not answer; the app answers requests"
	case c.Type == v1alpha1.ConditionClientConnected && c.Reason == v1alpha1.ReasonStowawayStarting: // another condition says so
		return ""
	}
	for i := range s.object.Status.Pods { // View adds the messages of the Pods
		if p := &s.object.Status.Pods[i]; p.Message != "" {
			if before, _, found := strings.Cut(c.Message, "Pod "+p.Name+": "); found {
				return strings.TrimSuffix(before, "; ")
			}
		}
	}
	return c.Message
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
