package trace

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// How a process wanted to use the memory that it could not reach.
var (
	accessRead  = []byte("read")
	accessWrite = []byte("write")
	accessExec  = []byte("exec")
)

func describeFault(e *event, out *tracefmt.Record) {
	access, present := faultOf(e.numbers[2])
	out.Call, out.Group = eventFault, string(GroupMemory)
	out.Args = append(out.Args,
		tracefmt.Arg{Name: "address", Kind: tracefmt.Hex, Number: int64(e.numbers[0])},
		tracefmt.Arg{Name: "ip", Kind: tracefmt.Hex, Number: int64(e.numbers[1])},
		tracefmt.Arg{Name: "access", Kind: tracefmt.Text, Text: access},
		tracefmt.Arg{Name: "present", Number: present},
	)
	out.Took = -1
	if took := e.took(); took != 0 && took&faultPending == 0 {
		out.Took = time.Duration(took &^ faultMajor)
		out.Args = append(out.Args, tracefmt.Arg{Name: "major", Number: int64(took & faultMajor >> 62)})
	}
}

// What became of a signal (include/trace/events/signal.h): it is pending, or why not.
var signalResults = [...]string{"delivered", "ignored", "alreadyPending", "overflow", "lostInfo"}

// signalCodes are the reasons of signals (include/uapi/asm-generic/siginfo.h) that all signals may have.
var signalCodes = map[int32]string{
	0: "SI_USER", -1: "SI_QUEUE", -2: "SI_TIMER", -3: "SI_MESGQ", -4: "SI_ASYNCIO", -5: "SI_SIGIO", -6: "SI_TKILL", 0x80: "SI_KERNEL",
}

// faultCodes are those of the signals that tell of faults and children.
var faultCodes = map[unix.Signal][]string{
	unix.SIGSEGV: {"SEGV_MAPERR", "SEGV_ACCERR"},
	unix.SIGBUS:  {"BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR"},
	unix.SIGCHLD: {"CLD_EXITED", "CLD_KILLED", "CLD_DUMPED", "CLD_TRAPPED", "CLD_STOPPED", "CLD_CONTINUED"},
}

// describeSignal: numbers are signal, code, result, whether it is the process's, sender, address.
func describeSignal(e *event, out *tracefmt.Record) {
	signal, code := unix.Signal(e.numbers[0]), int32(e.numbers[1])
	out.Call, out.Group = eventSignal, string(GroupSignal)
	text := func(name, value string) {
		out.Args = append(out.Args, tracefmt.Arg{Name: name, Kind: tracefmt.Text, Text: []byte(value)})
	}
	text("signal", signalName(signal))
	out.Args = append(out.Args, tracefmt.Arg{Name: "number", Number: int64(signal)})
	text("code", codeName(signal, code))
	result := strconv.FormatUint(e.numbers[2], 10)
	if e.numbers[2] < uint64(len(signalResults)) {
		result = signalResults[e.numbers[2]]
	}
	text("result", result)
	if e.numbers[3] == 0 {
		text("to", "thread")
	} else {
		text("to", "process")
	}
	if byKernel(code) {
		text("from", "kernel")
		if signal == unix.SIGSEGV || signal == unix.SIGBUS {
			out.Args = append(out.Args, tracefmt.Arg{Name: "address", Kind: tracefmt.Hex, Number: int64(e.numbers[5])})
		}
		return
	}
	text("from", "process")
	out.Args = append(out.Args,
		tracefmt.Arg{Name: "senderHostPid", Kind: tracefmt.Unsigned, Number: int64(e.numbers[4])},
		tracefmt.Arg{Name: "senderComm", Kind: tracefmt.Text, Text: e.first},
	)
}

// byKernel: codes of programs are zero and below, but for those by which the kernel tells of what they have asked for
// (timers, queues). It does not let programs use the others.
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

// signalName: those above 31 have none but their place in the kernel's order.
func signalName(signal unix.Signal) string {
	if name := unix.SignalName(signal); name != "" {
		return name
	}
	return "SIGRT_" + strconv.Itoa(int(signal)-32)
}

// describeOOM: numbers are pages, of all and of those without a file.
func describeOOM(e *event, out *tracefmt.Record) {
	page := int64(os.Getpagesize())
	out.Call, out.Group = eventOOM, string(GroupSignal)
	out.Args = append(out.Args,
		tracefmt.Arg{Name: "totalBytes", Kind: tracefmt.Unsigned, Number: int64(e.numbers[0]) * page},
		tracefmt.Arg{Name: "anonBytes", Kind: tracefmt.Unsigned, Number: max(0, int64(e.numbers[1])) * page},
	)
}
