package traceview

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

func TestFilter(t *testing.T) {
	records := map[string]*tracefmt.Record{
		"read":       {Call: "read", Group: "io", Container: "web", Comm: []byte("nginx"), Took: 10 * time.Millisecond, HasRet: true, Ret: 7},
		"quick":      {Call: "read", Group: "io", Container: "web", Comm: []byte("nginx"), Took: 10*time.Millisecond - 1, HasRet: true},
		"openat":     {Call: "openat", Group: "file", Container: "log", Comm: []byte("sh"), HasRet: true, Ret: -1, Errno: "ENOENT"},
		"ring":       {Call: "io_uring_openat", Group: "file", Container: "db", Comm: []byte("db"), HasRet: true, Ret: 3},
		"exec":       {Call: callExec, Group: "process", Comm: []byte("sh"), Took: -1},
		"connection": {Call: callConnection, Group: "network", Container: "log", Took: -1, Errno: "ECONNREFUSED"},
	}
	pods := map[string]string{"read": "web-1", "quick": "web-1", "openat": "web-2", "ring": "db-1", "exec": "db-1", "connection": "db-10"}
	for name, tc := range map[string]struct {
		filter Filter
		want   string
	}{
		"all":                       {Filter{}, "connection exec openat quick read ring"},
		"a group":                   {Filter{Groups: []string{"io"}}, "quick read"},
		"groups":                    {Filter{Groups: []string{"io", "process"}}, "exec quick read"},
		"a call":                    {Filter{Calls: []string{"openat"}}, "openat ring"},
		"an operation of io_urings": {Filter{Calls: []string{"io_uring_openat"}}, "ring"},
		"a group and a call beside": {Filter{Groups: []string{"process"}, Calls: []string{"openat"}}, "exec openat ring"},
		"a Pod":                     {Filter{Pods: []string{"db-1"}}, "exec ring"},
		"Pods by prefix":            {Filter{Pods: []string{"web-*"}}, "openat quick read"},
		"Pods":                      {Filter{Pods: []string{"db-10", "web-1*"}}, "connection quick read"},
		"part of a Pod's name":      {Filter{Pods: []string{"web"}}, ""},
		"a container":               {Filter{Containers: []string{"log"}}, "connection openat"},
		"containers":                {Filter{Containers: []string{"log", "web"}}, "connection openat quick read"},
		"a name":                    {Filter{Comms: []string{"sh"}}, "exec openat"},
		"part of a name":            {Filter{Comms: []string{"s"}}, ""},
		"what took long":            {Filter{MinLatency: 10 * time.Millisecond}, "connection exec read"},
		"what failed":               {Filter{Failed: true}, "connection openat"},
		"all of it at once":         {Filter{Groups: []string{"file", "io"}, Containers: []string{"web"}, Comms: []string{"nginx"}, MinLatency: time.Millisecond * 10}, "read"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for key := range strings.FieldsSeq("connection exec openat quick read ring") {
				if tc.filter.Keeps(pods[key], records[key]) {
					got = append(got, key)
				}
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSameCall: an operation of an io_uring counts like the call that does the same.
func TestSameCall(t *testing.T) {
	for name, want := range map[string]string{
		"read": "read", "io_uring_read": "read", "io_uring_read_fixed": "read", "io_uring_readv_fixed": "readv", "io_uring_read_multishot": "read",
		"io_uring_send_zc": "sendto", "io_uring_sendmsg_zc": "sendmsg", "io_uring_recv": "recvfrom", "io_uring_accept": "accept4",
	} {
		if got := sameCall(name); got != want {
			t.Errorf("%s does the same as %s, want %s", name, got, want)
		}
	}
	if f := (&Filter{Calls: []string{"sendto"}}); !f.hasCall("io_uring_send") || f.hasCall("io_uring_recv") {
		t.Error("sendto does not select io_uring_send alone")
	}
	files := fileTable{files: map[string]*fileCount{}}
	files.add(&tracefmt.Record{Call: "io_uring_write_fixed", Path: []byte("/data"), HasRet: true, Ret: 4096})
	if got := files.files["/data"]; got.written != 4096 || got.read != 0 {
		t.Errorf("%+v, want 4096 bytes written", got)
	}
}

// filtered sums up the events that a filter keeps.
type filtered struct {
	Filter
	summary *Summary
}

func (f filtered) Line(from *Source, line *tracefmt.Line) error {
	if line.Record != nil && !f.Keeps(from.Pod(), line.Record) {
		f.summary.Exclude(from, line.Record)
		return nil
	}
	f.summary.Line(from, line)
	return nil
}

func (f filtered) Damaged(from *Source, err error) error {
	f.summary.Damaged(from, err)
	return nil
}
func (f filtered) End(from *Source) { f.summary.End(from) }
func (f filtered) Idle() error      { return nil }

// Excluded events are not reported as missing. A shown process has all the details that the trace has.
func TestSummaryOfWhatIsWanted(t *testing.T) {
	for name, tc := range map[string]struct {
		filter        Filter
		want          string // the first line
		wantProcesses string
	}{
		"one call": {Filter{Calls: []string{"unlink", "rename", "renameat2"}}, "1 of 225 events in 0ns: file 1. None was lost.\n", `PROCESS  STARTED          ENDED WITH  EVENTS  COMMAND
web/1    before           3                0  /bin/sh /srv/start.sh
web/6    19:26:09.588286  0                1    mv out "final name"
`},
		"what failed": {Filter{Failed: true, Comms: []string{"cat"}}, "3 of 225 events in 818µs: file 3. None was lost.\n", `PROCESS  STARTED          ENDED WITH  EVENTS  COMMAND
web/1    before           3                0  /bin/sh /srv/start.sh
web/4    19:26:09.586918  0                1    cat /etc/hostname
web/5    19:26:09.587580  1                2    cat missing
`},
		"forks":    {Filter{Calls: []string{callFork}}, "7 of 225 events in 4.33ms: process 7. None was lost.\n", ""},
		"all":      {Filter{}, "225 events in 5.54ms: file 146, io 50, process 29. None was lost.\n", ""},
		"nothing":  {Filter{Containers: []string{"log"}}, "0 of 225 events. None was lost.\n", ""},
		"by group": {Filter{Groups: []string{"io"}}, "50 of 225 events in 5.28ms: io 50. None was lost.\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := filtered{tc.filter, NewSummary()}
			if err := Read(t.Context(), []*Source{NewSource("shell.ndjson", strings.NewReader(shell(t)))}, f); err != nil {
				t.Fatal(err)
			}
			text := f.summary.Text()
			if head, _, _ := strings.Cut(text, "\n"); head+"\n" != tc.want {
				t.Errorf("it begins with %q, want %q", head, tc.want)
			}
			if strings.Contains(text, "was not measured") {
				t.Errorf("it calls a measured trace unmeasured:\n%s", text)
			}
			_, got, _ := strings.Cut(text, "\nProcesses:\n")
			if diff := cmp.Diff(tc.wantProcesses, got); tc.wantProcesses != "" && diff != "" {
				t.Errorf("processes (-want +got):\n%s", diff)
			}
			if p := f.summary.Problems(); p != nil {
				t.Errorf("problems: %q", p)
			}
		})
	}
}
