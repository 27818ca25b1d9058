package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processTime is the CPU time of a process, user and system, all of its threads, ended ones too; zero if it is gone.
// It is exact to the nanosecond where /proc has ticks (clock_getcpuclockid(3)).
func processTime(pid int) time.Duration {
	const processClock = 2 // CPUCLOCK_SCHED of include/linux/posix-timers_types.h
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|processClock, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// softirqThread finds the thread that takes over when a CPU has more interrupts' work than it should do at once.
func softirqThread(cpu int) (pid int, err error) {
	name := "ksoftirqd/" + strconv.Itoa(cpu)
	found, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range found {
		if b, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(b)) == name {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, fmt.Errorf("find %s: bench must see the machine's processes", name)
}

// interruptTime is what a CPU has spent on interrupts as /proc/stat has it.
func interruptTime(cpu int) (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read interrupt times: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 8 || f[0] != "cpu"+strconv.Itoa(cpu) {
			continue
		}
		irq, err1 := strconv.Atoi(f[6])
		soft, err2 := strconv.Atoi(f[7])
		if err1 == nil && err2 == nil {
			return time.Duration(irq+soft) * 10 * time.Millisecond, nil // ticks of USER_HZ
		}
	}
	return 0, fmt.Errorf("read interrupt times: /proc/stat has no CPU %d", cpu)
}

// quiet tells whether no thread of a process runs or waits for a CPU or a disk.
func quiet(pid int) bool {
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	for _, path := range tasks {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, rest, _ := bytes.Cut(b[bytes.LastIndexByte(b, ')')+1:], []byte{' '})
		if len(rest) == 0 || rest[0] != 'S' {
			return false
		}
	}
	return len(tasks) > 0
}

// memory of a process, in bytes.
type memory struct {
	Peak int64 `json:"peak"` // most that it took
	Ring int64 `json:"ring"` // of it, rings shared with the kernel and BPF maps
}

// processMemory is what a process takes. Which pages of BPF maps and of rings of BPF and perf it is charged with differs
// from kernel to kernel: so they are counted by what the kernel says that they take. Those of packet sockets are resident.
func processMemory(pid int) (memory, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return memory{}, fmt.Errorf("read memory: %w", err)
	}
	b, err := os.ReadFile(dir + "/smaps")
	if err != nil {
		return memory{}, fmt.Errorf("read mappings: %w", err)
	}
	return memoryOf(status, b, bpfMemory(dir)), nil
}

// memoryOf is processMemory of the files status and smaps, and of the size of maps.
func memoryOf(status, smaps []byte, maps int64) memory {
	m := memory{Peak: kibibytes(status, "VmHWM:")}
	rings := maps // that are not in Peak
	socket, bpf, perf := false, false, false
	for s := bufio.NewScanner(bytes.NewReader(smaps)); s.Scan(); {
		line := s.Bytes()
		switch name, _, _ := bytes.Cut(line, []byte{' '}); {
		case !bytes.HasSuffix(name, []byte{':'}):
			socket, bpf, perf = bytes.Contains(line, []byte("socket:[")), bytes.Contains(line, []byte("bpf-map")), bytes.Contains(line, []byte("[perf_event]"))
		case string(name) == "Rss:" && socket:
			m.Ring += kibibytes(line, "Rss:")
		case string(name) == "Rss:" && (bpf || perf):
			m.Peak -= kibibytes(line, "Rss:")
		case string(name) == "Size:" && perf:
			rings += kibibytes(line, "Size:")
		}
	}
	m.Peak, m.Ring = m.Peak+rings, m.Ring+rings
	return m
}

// bpfMemory is what the BPF maps and programs take that a process has open (proc_pid_fdinfo(5)).
func bpfMemory(dir string) int64 {
	var total int64
	seen := map[string]bool{}
	found, _ := filepath.Glob(dir + "/fdinfo/*")
	for _, path := range found {
		var id string
		var size int64
		for line := range strings.Lines(string(fileContent(path))) {
			key, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimSpace(value); key {
			case "map_id", "prog_id":
				id = key + value
			case "memlock":
				size, _ = strconv.ParseInt(value, 10, 64)
			}
		}
		if id != "" && size > 0 && !seen[id] { // a link names its program, too, and takes nothing
			seen[id] = true
			total += size
		}
	}
	return total
}

// kibibytes reads the line of a file of /proc that begins with name.
func kibibytes(b []byte, name string) int64 {
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == name {
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			return n << 10
		}
	}
	return 0
}
