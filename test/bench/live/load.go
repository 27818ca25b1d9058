package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// follow measures the plugin that follows several Pods with much traffic. A writer takes the place of their probes; one
// keeper has the files of all.
func follow(ctx context.Context, b *host.Env, o *Sizes) (out figures.Followed, err error) {
	w, err := newWorld(b)
	if err != nil {
		return out, err
	}
	defer w.close()
	results, control := filepath.Join(w.dir, "results"), filepath.Join(w.dir, "control")
	if err := errors.Join(os.Mkdir(results, 0o755), os.Mkdir(control, 0o755)); err != nil {
		return out, err
	}
	writer, err := command(ctx, "writer", &settings{Results: results, Files: followedPods, Rate: followedRate, Time: o.Follow})
	if err != nil {
		return out, err
	}
	report := make(chan error, 1)
	var sent written
	go func() { report <- host.Talk(ctx, writer, &sent) }()
	err = host.Await(ctx, "the Pods have files", func() (bool, error) {
		_, err := os.Stat(filepath.Join(results, captureconfig.ProgressFile))
		return err == nil, nil
	})
	if err != nil {
		return out, errors.Join(err, <-report)
	}
	keeper, err := w.keep(ctx, results, control)
	if err != nil {
		return out, errors.Join(err, <-report)
	}
	for i := range followedPods {
		name := fmt.Sprint("bench-", i)
		w.pods = append(w.pods, pod{Name: name, UID: "uid-" + name, Keeper: keeper, File: fileName(i)})
	}
	plugin, err := w.follow(ctx, o.Plugin)
	if err == nil {
		out, err = drain(ctx, plugin, filepath.Base(o.Plugin))
	}
	if err := errors.Join(err, <-report); err != nil {
		return out, err
	}
	out.Pods, out.Written, out.Bytes, out.Wall = followedPods, sent.Packets, sent.Bytes, sent.Wall
	if out.Packets+out.Left != out.Written {
		return out, fmt.Errorf("%d packets in the stream and %d left out are not the %d that the Pods have", out.Packets, out.Left, out.Written)
	}
	return out, nil
}

// drain runs the plugin, reads its packets, and measures it.
func drain(ctx context.Context, plugin *exec.Cmd, program string) (out figures.Followed, err error) {
	var said host.Output
	packets, err := plugin.StdoutPipe()
	if err != nil {
		return out, err
	}
	plugin.Stderr = &said
	if err := plugin.Start(); err != nil {
		return out, fmt.Errorf("start the plugin: %w", err)
	}
	memory := make(chan [2]int64)
	go func() { memory <- peakMemory(plugin.Process.Pid, program) }()
	_, readErr := pcapng.Walk(packets, func(b pcapng.BlockInfo) {
		if b.Packet {
			out.Packets++
		}
	})
	err = errors.Join(readErr, host.Wait(ctx, plugin))
	peak := <-memory
	out.Anonymous, out.Resident, out.CPU = peak[0], peak[1], host.Used(plugin)
	const incomplete = 3 // exit code of a stream that lacks packets
	if err != nil && plugin.ProcessState.ExitCode() != incomplete {
		return out, fmt.Errorf("%w: %s", err, said.String())
	}
	out.Left = numberBefore(said.String(), "packets were left out") + numberBefore(said.String(), "earlier packets")
	out.Late = numberBefore(said.String(), "packets came too late")
	if inStream := numberBefore(said.String(), "packets of "); inStream != out.Packets {
		return out, fmt.Errorf("the plugin says %d packets, and the stream has %d: %s", inStream, out.Packets, said.String())
	}
	return out, nil
}

// numberBefore returns the number before some words; zero if they are not there.
func numberBefore(text, words string) int64 {
	m := regexp.MustCompile(`(\d+) ` + regexp.QuoteMeta(words)).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	return n
}

// peakMemory returns the most memory that a process had while it ran a program: without the pages of files, and with them, in bytes.
func peakMemory(pid int, program string) (peak [2]int64) {
	const each, longest = 10 * time.Millisecond, 15
	program = program[:min(len(program), longest)] // as the kernel cuts it
	for ; ; time.Sleep(each) {
		status := string(host.FileContent(fmt.Sprintf("/proc/%d/status", pid)))
		if !strings.Contains(status, "RssAnon:") { // it has ended
			return peak
		}
		if !strings.HasPrefix(status, "Name:\t"+program+"\n") { // bench itself has not executed it yet
			continue
		}
		for i, name := range []string{"RssAnon:", "VmHWM:"} {
			var kib int64
			_, after, _ := strings.Cut(status, name)
			_, _ = fmt.Sscan(after, &kib)
			peak[i] = max(peak[i], kib<<10)
		}
	}
}
