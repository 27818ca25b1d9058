package trace

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a read of a byte costs the Pod, a stranger, and the reader: go test -bench Read -run XXX ./agents/trace. Figures
// that are compared with others' are make bench's.
func BenchmarkRead(b *testing.B) {
	for _, groups := range [][]Group{nil, {GroupIO}} {
		for _, inPod := range []bool{true, false} {
			name := map[bool]string{true: "Pod", false: "stranger"}[inPod]
			if groups != nil {
				name += ", traced"
			}
			b.Run(name, func(b *testing.B) { benchmarkRead(b, groups, inPod) })
		}
	}
}

func benchmarkRead(b *testing.B, groups []Group, inPod bool) {
	b.Helper()
	pod := newTestPod(b, testUID)
	pod.startReads(b, 1) // so that the Pod has a process
	procs := "/dev/null"
	if inPod {
		procs = filepath.Join(pod.dir, "cgroup.procs")
	}
	n := max(b.N, 100_000)
	cmd := exec.CommandContext(b.Context(), "/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, procs, "/usr/bin/taskset", "1", os.Args[0])
	cmd.Env = append(os.Environ(), toyEnv+"=reads", toyCount+"="+strconv.Itoa(n))
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		b.Fatal(err)
	}
	var r *running
	if groups != nil {
		r = start(b, &Config{PodUID: testUID, Groups: groups, Out: sinkFunc(func(lines []byte, _ int) (int, error) { return bytes.Count(lines, newline), nil })})
	}
	before := cpuTime(b)
	began := time.Now()
	_, _ = in.Write([]byte("x"))
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(n), "ns/read")
	if r != nil {
		r.cancel()
		<-r.done
		b.ReportMetric(float64(cpuTime(b)-before)/float64(max(r.result.Account.Written, 1)), "reader-ns/event")
		b.ReportMetric(float64(r.result.Account.Lost()), "lost")
	}
}

func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
