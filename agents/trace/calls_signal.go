package trace

import "golang.org/x/sys/unix"

// Arguments of calls that send signals.
var (
	pidArg  = argument{"pid", argInt}
	tgidArg = argument{"tgid", argInt}
	tidArg  = argument{"tid", argInt}
	sigArg  = argument{"sig", argInt}
	infoArg = argument{"info", argHex}
)

// signalCalls are those that send one.
var signalCalls = []call{
	{unix.SYS_KILL, "kill", GroupSignal, sig(pidArg, sigArg), false, false},
	{unix.SYS_TKILL, "tkill", GroupSignal, sig(tidArg, sigArg), false, false},
	{unix.SYS_TGKILL, "tgkill", GroupSignal, sig(tgidArg, tidArg, sigArg), false, false},
	{unix.SYS_RT_SIGQUEUEINFO, "rt_sigqueueinfo", GroupSignal, sig(tgidArg, sigArg, infoArg), false, false},
	{unix.SYS_RT_TGSIGQUEUEINFO, "rt_tgsigqueueinfo", GroupSignal, sig(tgidArg, tidArg, sigArg, infoArg), false, false},
	{unix.SYS_PIDFD_SEND_SIGNAL, "pidfd_send_signal", GroupSignal, sig(argument{"pidfd", argFD}, sigArg, infoArg, flags), false, false},
}
