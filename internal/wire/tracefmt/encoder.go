package tracefmt

import (
	"bytes"
	"time"
)

// Encoder makes lines of JSON of records. Of lines that follow one another most are of the same second and of few threads:
// the parts that say so are kept. Its zero value is ready; it belongs to one goroutine.
type Encoder struct {
	second int64      // of stamp
	stamp  []byte     // a time up to its second; empty at first
	actors [256]actor // by thread: one of those whose numbers fall into the same place
}

// actor is who does something, and how a line says that.
type actor struct {
	pid, tid, hostPID, hostTID, uid uint32
	container                       string
	comm                            []byte
	text                            []byte // empty at first
}

// Append appends a record as one line. Keys of what is empty or not known are left out.
func (e *Encoder) Append(b []byte, r *Record) []byte {
	b = appendPod(append(b, '{'), r.Pod, r.PodUID)
	b = append(append(b, `"time":"`...), e.upToSecond(r.Time)...)
	b = appendNanos(b, r.Time.Nanosecond())
	b = append(appendCall(b, r), e.actor(r)...)
	return appendRest(b, r)
}

// upToSecond is a time as appendSecond appends it.
func (e *Encoder) upToSecond(t time.Time) []byte {
	if second := t.Unix(); second != e.second || len(e.stamp) == 0 {
		e.second, e.stamp = second, appendSecond(e.stamp[:0], t)
	}
	return e.stamp
}

// actor is who did what a record tells, as appendActor appends it.
func (e *Encoder) actor(r *Record) []byte {
	a := &e.actors[r.HostTID%uint32(len(e.actors))]
	if !a.did(r) {
		a.pid, a.tid, a.hostPID, a.hostTID, a.uid, a.container = r.PID, r.TID, r.HostPID, r.HostTID, r.UID, r.Container
		a.comm, a.text = append(a.comm[:0], r.Comm...), appendActor(a.text[:0], r)
	}
	return a.text
}

func (a *actor) did(r *Record) bool {
	return len(a.text) > 0 && a.hostTID == r.HostTID && a.hostPID == r.HostPID && a.tid == r.TID && a.pid == r.PID && a.uid == r.UID &&
		a.container == r.Container && bytes.Equal(a.comm, r.Comm)
}
