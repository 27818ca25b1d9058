package main

import (
	"bytes"
	"errors"
	"io"
	"syscall"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

const traceFile = "web-1-ab12.ndjson"

// traces starts a trace of a running target, and returns when it is attached.
func (p *pod) traces(c *captureconfig.Trace) {
	p.t.Helper()
	text, err := captureconfig.Config{
		UID: "uid-1", Kind: "Trace", Namespace: "hub", Name: "web", JobID: "ab12", Requester: "alice", Target: "Deployment/web",
		TargetNamespace: "shop", MaxBytes: 1 << 24, RingBytes: 1 << 22, Trace: c,
	}.Marshal()
	if err != nil {
		p.t.Fatal(err)
	}
	put(p.t, p.config, text)
	p.startTarget(syscall.CLONE_NEWNET | syscall.CLONE_NEWPID)
	p.startProbe("--duration", "5m")
	p.startKeeper()
	p.ready()
}

// A trace on a node with its own process namespace, like a node that is a container.
func traceCycle(p *pod) {
	t := p.t
	p.traces(&captureconfig.Trace{Groups: []string{"process", "io"}, Durations: true})
	p.sends(100)
	p.stop(account.ReasonStopped)
	words := p.terminationMessage()
	if words.Reason != account.ReasonStopped || !words.Complete || !words.AddsUp() || words.Events < 100 || words.LostEvents() > 0 || words.Engine != "tracepoints" {
		t.Errorf("termination message %+v", words)
	}
	if len(words.Files) != 1 || words.Files[0].Name != traceFile || words.Files[0].Bytes != words.Bytes {
		t.Errorf("files %+v of %d bytes", words.Files, words.Bytes)
	}
	header, records, end := p.readTrace()
	if header == nil || header.Pod != "web-1" || header.PodUID != p.uid || !header.Durations {
		t.Errorf("header %+v", header)
	}
	writes := 0
	for _, r := range records {
		if r.Call == "write" && r.HostPID == uint32(p.target.Process.Pid) && r.PID == 1 && r.Ret > 0 && r.Took > 0 {
			writes++
		}
	}
	if writes < 100 { // packets, and the target's output
		t.Errorf("%d writes of the target among %d records, want at least 100", writes, len(records))
	}
	if end == nil || !end.Complete || end.Written != uint64(len(records)) || end.Written != uint64(words.Events) || end.Reason != account.ReasonStopped {
		t.Errorf("the file ends with %+v, %d records are in it; termination message %+v", end, len(records), words)
	}
}

// A killed tracer leaves complete lines, and no account at the file's end.
func traceKilled(p *pod) {
	t := p.t
	p.traces(&captureconfig.Trace{Groups: []string{"io"}})
	p.sends(1000)
	p.eventually("the events are reported", func() bool {
		a, err := p.client.Progress(t.Context(), p.port)
		return err == nil && a.Events >= 1000
	})
	if err := p.probe.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.exit(p.probe)
	_, records, end := p.readTrace()
	if len(records) < 1000 || end != nil {
		t.Errorf("%d records, want at least 1000; the file ends with %+v", len(records), end)
	}
	if words := p.terminationMessage(); words.Complete {
		t.Errorf("termination message %+v", words)
	}
	recounted, err := p.client.Recount(t.Context(), p.port)
	if err != nil || recounted.Events != int64(len(records)) {
		t.Errorf("the keeper counts %d events (%v), %d are in the file", recounted.Events, err, len(records))
	}
}

func traceFlap(p *pod) {
	t := p.t
	p.traces(&captureconfig.Trace{Groups: []string{"io"}, Flap: true})
	p.sends(50)
	p.stop(account.ReasonTargetGone)
	words := p.terminationMessage()
	if len(words.Files) != 1 || words.Files[0].Name != "web-1-ab12-trace_io_0.log" || words.Reason != account.ReasonTargetGone || !words.Complete {
		t.Fatalf("termination message %+v", words)
	}
	b := p.fetch(words.Files[0].Name)
	if n := int64(bytes.Count(b, []byte{'\n'})); n != 2*words.Events || n < 100 {
		t.Errorf("%d lines of %d events", n, words.Events)
	}
}

// A command whose process is running: its name is exe, because it was started by /proc/self/exe.
func traceCommand(p *pod) {
	t := p.t
	p.traces(&captureconfig.Trace{Groups: []string{"io"}, Command: "exe", Children: true})
	p.sends(100)
	p.stop(account.ReasonStopped)
	header, records, end := p.readTrace()
	if header == nil || header.Command != "exe" || !header.Children || end == nil || !end.Complete || len(records) < 100 {
		t.Errorf("header %+v, %d records, end %+v", header, len(records), end)
	}
}

// A container that cannot be identified is traced: the node has no link of the kubelet's for it.
func traceContainers(p *pod) {
	t := p.t
	p.traces(&captureconfig.Trace{Groups: []string{"io"}, Containers: []string{"web"}, Command: "none"})
	p.sends(100)
	p.stop(account.ReasonStopped)
	header, records, end := p.readTrace()
	if header == nil || len(header.Containers) != 1 || header.Command != "none" || end == nil || !end.Complete || end.Written != 0 || len(records) > 0 {
		t.Errorf("header %+v, %d records of a command that does not run, end %+v", header, len(records), end)
	}
}

// stop requests the end, as the manager does, and waits for the probe.
func (p *pod) stop(reason string) {
	p.t.Helper()
	if err := p.client.Stop(p.t.Context(), p.port, reason); err != nil {
		p.t.Fatal(err)
	}
	if code := p.exit(p.probe); code != 0 {
		p.t.Errorf("the probe's exit code is %d", code)
	}
}

func (p *pod) fetch(name string) []byte {
	p.t.Helper()
	resp, err := p.client.File(p.t.Context(), p.port, name, "")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

func (p *pod) readTrace() (header *tracefmt.Header, records []*tracefmt.Record, end *tracefmt.Account) {
	p.t.Helper()
	r := tracefmt.NewReader(bytes.NewReader(p.fetch(traceFile)))
	for {
		line, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return header, records, end
		case err != nil:
			p.t.Fatal(err)
		case line.Header != nil:
			header = line.Header
		case line.Record != nil:
			records = append(records, line.Record)
		case line.Account != nil:
			end = line.Account
		}
	}
}
