package host

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

	"github.com/sonde-operator/sonde/test/bench/figures"
)

// ProcessTime returns the user and system time of a process, including threads that have ended, or zero if it does not
// exist. Its resolution is a nanosecond, while /proc has ticks (clock_getcpuclockid(3)).
func ProcessTime(pid int) time.Duration {
	const processClock = 2 // CPUCLOCK_SCHED of include/linux/posix-timers_types.h
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|processClock, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// softirqThread returns the PID of the thread that handles softirqs when a CPU has too many of them.
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

// interruptTime returns the time that a CPU has spent on interrupts, from /proc/stat.
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

// Quiet reports whether all threads of a process sleep.
func Quiet(pid int) bool {
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

// ProcessMemory returns the memory of a process. Kernels differ in which pages of BPF maps, BPF rings and perf rings
// they count as resident, so these are counted by their size. Rings of packet sockets are always resident.
func ProcessMemory(pid int) (figures.Memory, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return figures.Memory{}, fmt.Errorf("read memory: %w", err)
	}
	b, err := os.ReadFile(dir + "/smaps")
	if err != nil {
		return figures.Memory{}, fmt.Errorf("read mappings: %w", err)
	}
	return memoryOf(status, b, bpfMemory(dir)), nil
}

// memoryOf computes the memory from the files status and smaps, and from the size of BPF maps.
func memoryOf(status, smaps []byte, maps int64) figures.Memory {
	m := figures.Memory{Peak: kibibytes(status, "VmHWM:")}
	rings := maps // not counted in Peak
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

// bpfMemory returns the size of the BPF maps and programs that a process has open (proc_pid_fdinfo(5)).
func bpfMemory(dir string) int64 {
	var total int64
	counted := map[string]bool{}
	found, _ := filepath.Glob(dir + "/fdinfo/*")
	for _, path := range found {
		var id string
		var size int64
		for line := range strings.Lines(string(FileContent(path))) {
			key, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimSpace(value); key {
			case "map_id", "prog_id":
				id = key + value
			case "memlock":
				size, _ = strconv.ParseInt(value, 10, 64)
			}
		}
		if id != "" && size > 0 && !counted[id] { // a link names its program, too, and takes nothing
			counted[id] = true
			total += size
		}
	}
	return total
}

// kibibytes returns the value of the line that begins with name, in bytes.
func kibibytes(b []byte, name string) int64 {
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == name {
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			return n << 10
		}
	}
	return 0
}
