package tracefmt

import (
	"bytes"
	"time"
)

// Encoder writes records as lines of JSON. Most consecutive lines are of the same second and of a few threads, so it
// caches those parts of a line. The zero value is ready to use; only one goroutine may use an Encoder.
type Encoder struct {
	second int64      // the second that stamp says
	stamp  []byte     // cached result of appendSecond; empty at first
	actors [256]actor // cached results of appendActor, by thread ID modulo 256
}

// actor is a thread and the text that describes it in a line.
type actor struct {
	pid, tid, hostPID, hostTID, uid uint32
	container                       string
	comm                            []byte
	text                            []byte // empty at first
}

// Append appends a record as one line. It omits the keys of empty and unknown values.
func (e *Encoder) Append(b []byte, r *Record) []byte {
	b = appendPod(append(b, '{'), r.Pod, r.PodUID)
	b = append(append(b, `"time":"`...), e.seconds(r.Time)...)
	b = appendNanos(b, r.Time.Nanosecond())
	b = append(appendCall(b, r), e.actor(r)...)
	return appendRest(b, r)
}

// seconds returns what appendSecond appends for t.
func (e *Encoder) seconds(t time.Time) []byte {
	if second := t.Unix(); second != e.second || len(e.stamp) == 0 {
		e.second, e.stamp = second, appendSecond(e.stamp[:0], t)
	}
	return e.stamp
}

// actor returns what appendActor appends for r.
func (e *Encoder) actor(r *Record) []byte {
	a := &e.actors[r.HostTID%uint32(len(e.actors))]
	if !a.matches(r) {
		a.pid, a.tid, a.hostPID, a.hostTID, a.uid, a.container = r.PID, r.TID, r.HostPID, r.HostTID, r.UID, r.Container
		a.comm, a.text = append(a.comm[:0], r.Comm...), appendActor(a.text[:0], r)
	}
	return a.text
}

func (a *actor) matches(r *Record) bool {
	return len(a.text) > 0 && a.hostTID == r.HostTID && a.hostPID == r.HostPID && a.tid == r.TID && a.pid == r.PID && a.uid == r.UID &&
		a.container == r.Container && bytes.Equal(a.comm, r.Comm)
}
