package decode

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Names of events that are not system calls.
const (
	EventExec       = "exec"
	EventFork       = "fork"
	EventExit       = "exit"
	EventFault      = "fault"
	EventSignal     = "signal"
	EventOOM        = "oom_kill"
	EventConnection = "connection"
	EventRetransmit = "retransmit"
	EventReset      = "reset"
)

// EventNames are the names of kinds of records other than system calls.
var EventNames = map[kernel.Kind]string{
	kernel.KindExec:       EventExec,
	kernel.KindFork:       EventFork,
	kernel.KindExit:       EventExit,
	kernel.KindFault:      EventFault,
	kernel.KindSignal:     EventSignal,
	kernel.KindOOM:        EventOOM,
	kernel.KindConnection: EventConnection,
	kernel.KindRetransmit: EventRetransmit,
	kernel.KindReset:      EventReset,
	kernel.KindUringEnd:   EventUring,
}

// How a process tried to access the memory of a page fault.
var (
	accessRead  = []byte("read")
	accessWrite = []byte("write")
	accessExec  = []byte("exec")
)

func decodeFault(e *kernel.Record, out *tracefmt.Record) {
	access, present := faultOf(e.Numbers[2])
	out.Call, out.Group = EventFault, string(GroupMemory)
	out.Args = append(out.Args,
		tracefmt.Arg{Name: "address", Kind: tracefmt.Hex, Number: int64(e.Numbers[0])},
		tracefmt.Arg{Name: "ip", Kind: tracefmt.Hex, Number: int64(e.Numbers[1])},
		tracefmt.Arg{Name: "access", Kind: tracefmt.Text, Text: access},
		tracefmt.Arg{Name: "present", Number: present},
	)
	out.Took = -1
	if ns, major, measured := e.FaultDuration(); measured {
		out.Took = time.Duration(ns)
		arg := tracefmt.Arg{Name: "major"}
		if major {
			arg.Number = 1
		}
		out.Args = append(out.Args, arg)
	}
}

// signalResults say whether a signal became pending, or why not (include/trace/events/signal.h).
var signalResults = [...]string{"delivered", "ignored", "alreadyPending", "overflow", "lostInfo"}

// signalCodes are the reasons that any signal may have (include/uapi/asm-generic/siginfo.h).
var signalCodes = map[int32]string{
	0: "SI_USER", -1: "SI_QUEUE", -2: "SI_TIMER", -3: "SI_MESGQ", -4: "SI_ASYNCIO", -5: "SI_SIGIO", -6: "SI_TKILL", 0x80: "SI_KERNEL",
}

// faultCodes are the reasons of signals about faults and children.
var faultCodes = map[unix.Signal][]string{
	unix.SIGSEGV: {"SEGV_MAPERR", "SEGV_ACCERR"},
	unix.SIGBUS:  {"BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR"},
	unix.SIGCHLD: {"CLD_EXITED", "CLD_KILLED", "CLD_DUMPED", "CLD_TRAPPED", "CLD_STOPPED", "CLD_CONTINUED"},
}

// decodeSignal reads a signal. Its numbers are signal, code, result, whether it went to the whole process, sender,
// address.
func decodeSignal(e *kernel.Record, out *tracefmt.Record) {
	signal, code := unix.Signal(e.Numbers[0]), int32(e.Numbers[1])
	out.Call, out.Group = EventSignal, string(GroupSignal)
	text := func(name, value string) {
		out.Args = append(out.Args, tracefmt.Arg{Name: name, Kind: tracefmt.Text, Text: []byte(value)})
	}
	text("signal", signalName(signal))
	out.Args = append(out.Args, tracefmt.Arg{Name: "number", Number: int64(signal)})
	text("code", codeName(signal, code))
	result := strconv.FormatUint(e.Numbers[2], 10)
	if e.Numbers[2] < uint64(len(signalResults)) {
		result = signalResults[e.Numbers[2]]
	}
	text("result", result)
	if e.Numbers[3] == 0 {
		text("to", "thread")
	} else {
		text("to", "process")
	}
	if byKernel(code) {
		text("from", "kernel")
		if signal == unix.SIGSEGV || signal == unix.SIGBUS {
			out.Args = append(out.Args, tracefmt.Arg{Name: "address", Kind: tracefmt.Hex, Number: int64(e.Numbers[5])})
		}
		return
	}
	text("from", "process")
	out.Args = append(out.Args,
		tracefmt.Arg{Name: "senderHostPid", Kind: tracefmt.Unsigned, Number: int64(e.Numbers[4])},
		tracefmt.Arg{Name: "senderComm", Kind: tracefmt.Text, Text: e.First},
	)
}

// byKernel reports whether a signal's code is the kernel's. A process may send itself any code, and others those by which the kernel
// reports timers, queues and I/O (rt_sigqueueinfo(2)). Nothing in the signal tells.
func byKernel(code int32) bool { return code > 0 || code <= -2 && code >= -5 }

func codeName(signal unix.Signal, code int32) string {
	if name, ok := signalCodes[code]; ok {
		return name
	}
	if names := faultCodes[signal]; code > 0 && int(code) <= len(names) {
		return names[code-1]
	}
	return strconv.Itoa(int(code))
}

// signalName returns SIGRT_n for the signals above 31, which have no other names.
func signalName(signal unix.Signal) string {
	if name := unix.SignalName(signal); name != "" {
		return name
	}
	return "SIGRT_" + strconv.Itoa(int(signal)-32)
}

// decodeOOM reads an OOM kill. Its numbers are the pages in total, and the anonymous pages.
func decodeOOM(e *kernel.Record, out *tracefmt.Record) {
	page := int64(os.Getpagesize())
	out.Call, out.Group = EventOOM, string(GroupSignal)
	out.Args = append(out.Args,
		tracefmt.Arg{Name: "totalBytes", Kind: tracefmt.Unsigned, Number: int64(e.Numbers[0]) * page},
		tracefmt.Arg{Name: "anonBytes", Kind: tracefmt.Unsigned, Number: max(0, int64(e.Numbers[1])) * page},
	)
}
