package trace

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/kernel/kerneltest"
)

// The cost of a read of one byte for the Pod, for another process, and for the reader: go test -bench Read -run XXX
// ./agents/trace. Published figures are from make bench.
func BenchmarkRead(b *testing.B) {
	for _, groups := range [][]decode.Group{nil, {decode.GroupIO}} {
		for _, inPod := range []bool{true, false} {
			name := map[bool]string{true: "Pod", false: "other process"}[inPod]
			if groups != nil {
				name += ", traced"
			}
			b.Run(name, func(b *testing.B) { benchmarkRead(b, groups, inPod) })
		}
	}
}

func benchmarkRead(b *testing.B, groups []decode.Group, inPod bool) {
	b.Helper()
	pod := newTestPod(b)
	pod.startReads(b, 1) // so that the Pod has a process
	procs := "/dev/null"
	if inPod {
		procs = filepath.Join(pod.dir, "cgroup.procs")
	}
	n := max(b.N, 100_000)
	cmd := exec.CommandContext(b.Context(), "/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, procs, "/usr/bin/taskset", "1", os.Args[0])
	cmd.Env = append(os.Environ(), workloadEnv+"=reads", workloadCount+"="+strconv.Itoa(n))
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
		r = start(b, &Config{PodUID: pod.uid, Groups: groups, Out: sinkFunc(func(_ []byte, events int) (int, error) { return events, nil })})
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

// The cost of one look for the names of containers, on a node with 110 Pods of three containers: go test -bench Look -run XXX
// ./agents/trace.
func BenchmarkLook(b *testing.B) {
	pod, root := newTestPod(b), nodeRoot(b)
	pod.startReads(b, 1) // so that the Pod has a process
	for i := range 330 {
		link := filepath.Join(root, "var", "log", "containers", fmt.Sprintf("web-%d_shop_web-%064x.log", i, i<<16))
		if err := os.Symlink("/nowhere", link); err != nil {
			b.Fatal(err)
		}
	}
	tr, err := Open(&Config{
		PodUID: pod.uid, NodeRoot: root, Groups: []decode.Group{decode.GroupFile}, Containers: []string{"web"},
		Out: sinkFunc(func(_ []byte, events int) (int, error) { return events, nil }),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = tr.Close() })
	for b.Loop() {
		if err := tr.resolve(); err != nil || len(tr.containers.undecided) != 1 {
			b.Fatalf("%v: %+v", err, tr.containers)
		}
	}
	tasks, err := tr.program.Tasks()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(tasks)), "processes")
}

// The cost of formatting events, without rings and files: go test -bench Events -run XXX ./agents/trace.
func BenchmarkEvents(b *testing.B) {
	for name, records := range map[string][][]byte{
		"read":             {kerneltest.Call(unix.SYS_READ, []uint64{3, 0xc000012345, 1})},
		"openat and close": {kerneltest.Call(unix.SYS_OPENAT, []uint64{0xffffff9c, 0, unix.O_CLOEXEC, 0}, "/usr/share/zoneinfo/Europe/Berlin"), kerneltest.Call(unix.SYS_CLOSE, []uint64{3})},
	} {
		b.Run(name, func(b *testing.B) {
			t := newTrace(&Config{
				Proc: "/nowhere", Groups: []decode.Group{decode.GroupFile, decode.GroupIO},
				Out: sinkFunc(func(_ []byte, events int) (int, error) { return events, nil }),
			})
			for _, r := range records {
				head := kerneltest.Head(r)
				head.Pid, head.Tid, head.InnerPid, head.InnerTid, head.Uid, head.Cgroup = 41234, 41235, 1, 9, 1000, 4711
				copy(unsafe.Slice((*byte)(unsafe.Pointer(&head.Comm[0])), len(head.Comm)), "postgres")
			}
			kerneltest.Head(records[0]).Ret = 3
			b.ReportAllocs()
			var e kernel.Record
			for i := 0; b.Loop(); i++ {
				r := records[i%len(records)]
				kerneltest.Head(r).Time += 400
				if !e.Parse(r) {
					b.Fatal("malformed")
				}
				t.write(&e)
			}
		})
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
