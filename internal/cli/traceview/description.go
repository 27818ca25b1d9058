package traceview

import (
	"strconv"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Names of events and arguments that this package interprets.
const (
	callExec = "exec"
	callFork = "fork"
	callExit = "exit"

	argArgv   = "argv"
	argSignal = "signal"
	argParent = "parentHostPid"

	atFDCWD = -100
)

// addresses are arguments that point into the memory of the process. They are not shown.
var addresses = map[string]bool{
	"buf": true, "iov": true, "statbuf": true, "dirp": true, "how": true, "cl_args": true, "params": true, "envp": true,
	argArgv: true, "off_in": true, "off_out": true, "mask": true, "msg": true, "msgvec": true, "addrlen": true,
}

// paths are arguments that are always text, even if it looks like a number.
var paths = map[string]bool{"pathname": true, "oldpath": true, "newpath": true, "target": true, "linkpath": true}

// labelled are text arguments that are shown with their names.
var labelled = map[string]bool{"code": true, "result": true, "to": true, "from": true, "senderComm": true, "access": true, "sv": true}

// description returns the path of an event, and the arguments that add to it.
func description(r *tracefmt.Record, arch string) string {
	if r.Call == callExec {
		var argv []byte
		if a := argument(r, argArgv); a != nil {
			argv = a.Text
		}
		return commandText(r.Path, argv)
	}
	if isConnectionEvent(r) {
		return connectionText(r)
	}
	var parts []string
	if len(r.Path) > 0 {
		parts = append(parts, quoted(r.Path))
	}
	texts := 0
	for i := range r.Args {
		a := r.Args[i]
		if a.Kind == tracefmt.Hex && paths[a.Name] { // a file may be called 0x1f
			a.Kind, a.Text = tracefmt.Text, []byte(numberText(&a))
		}
		if a.Kind == tracefmt.Text {
			texts++
		}
		if s := argumentText(r, &a, texts, arch); s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, " ")
}

// argumentText returns the text for an argument; empty if it is not shown. texts counts the
// text arguments up to this one.
func argumentText(r *tracefmt.Record, a *tracefmt.Arg, texts int, arch string) string {
	switch {
	case a.Kind == tracefmt.List:
		return a.Name + "=[" + commandLine(a.Text) + "]"
	case a.Kind != tracefmt.Text:
		return describeNumber(r, a, arch)
	case a.Name == "src_addr" || a.Name == "addr" && strings.HasPrefix(r.Call, "accept"): // the path has the other address
		return "from " + quoted(a.Text)
	case labelled[a.Name]:
		return a.Name + "=" + quoted(a.Text)
	case texts > 1:
		return "-> " + quoted(a.Text)
	case r.Call == callExit || len(r.Path) > 0: // it is in the result, or it is the path before it was resolved
		return ""
	}
	return quoted(a.Text)
}

func describeNumber(r *tracefmt.Record, a *tracefmt.Arg, arch string) string {
	switch a.Name {
	case "flags":
		return flagsText(r, a, arch)
	case "mode":
		return modeText(r, a)
	case "dirfd", "olddirfd", "newdirfd":
		return directoryText(r, a)
	case argParent:
		return "by host pid " + numberText(a)
	case "domain", "protocol": // the path shows it
		return ""
	case "type":
		return socketType(a)
	case "how":
		if mode := shutdownModes[a.Number]; r.Call == "shutdown" && mode != "" {
			return mode
		}
	}
	if name := fcntlCommands[a.Number]; a.Name == "cmd" && name != "" {
		return name
	}
	if addresses[a.Name] || a.Kind == tracefmt.Hex && a.Number == 0 {
		return ""
	}
	return a.Name + "=" + numberText(a)
}

// socketType describes the type argument of socket(2): a type, and flags of the new descriptor.
func socketType(a *tracefmt.Arg) string {
	const kinds = 0xf
	n := uint64(a.Number)
	kind := map[uint64]string{1: "SOCK_STREAM", 2: "SOCK_DGRAM", 3: "SOCK_RAW", 5: "SOCK_SEQPACKET"}[n&kinds]
	if kind == "" {
		return sockBits.names(n)
	}
	return sockBits.names(n&^kinds, kind)
}

// directoryText describes the directory of a relative path, unless the resolved path includes it.
func directoryText(r *tracefmt.Record, a *tracefmt.Arg) string {
	switch {
	case len(r.Path) > 0 && (a.Number == atFDCWD || a.Name != "newdirfd"):
		return ""
	case a.Number == atFDCWD:
		return "AT_FDCWD"
	}
	return a.Name + "=" + numberText(a)
}

func numberText(a *tracefmt.Arg) string {
	switch a.Kind {
	case tracefmt.Hex:
		return "0x" + strconv.FormatUint(uint64(a.Number), 16)
	case tracefmt.Unsigned:
		return strconv.FormatUint(uint64(a.Number), 10)
	default:
		return strconv.FormatInt(a.Number, 10)
	}
}

func opens(call string) bool { return call == "open" || call == "openat" }

func flagsText(r *tracefmt.Record, a *tracefmt.Arg, arch string) string {
	n := uint64(a.Number)
	switch {
	case opens(r.Call):
		return openFlags(n, arch)
	case r.Call == "clone":
		return cloneFlags(n)
	}
	return flagsOf[r.Call].names(n)
}

// modeText writes permissions as octal numbers. A call that cannot create a file does not use them.
func modeText(r *tracefmt.Record, a *tracefmt.Arg) string {
	if strings.HasPrefix(r.Call, "access") || strings.HasPrefix(r.Call, "faccess") {
		if a.Number == 0 {
			return "F_OK"
		}
		return accessBits.names(uint64(a.Number))
	}
	const creates = 0x40 | 0x400000 // O_CREAT, O_TMPFILE
	if flags := argument(r, "flags"); opens(r.Call) && (flags == nil || flags.Number&creates == 0) {
		return ""
	}
	return "0" + strconv.FormatUint(uint64(a.Number), 8)
}
