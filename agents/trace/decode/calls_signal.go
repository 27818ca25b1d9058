package decode

import "golang.org/x/sys/unix"

// Arguments of calls that send signals.
var (
	pidArg  = Argument{"pid", ArgInt}
	tgidArg = Argument{"tgid", ArgInt}
	tidArg  = Argument{"tid", ArgInt}
	sigArg  = Argument{"sig", ArgInt}
	infoArg = Argument{"info", ArgHex}
)

// signalCalls are the calls that send a signal.
var signalCalls = []Call{
	{unix.SYS_KILL, "kill", GroupSignal, args(pidArg, sigArg), false, false},
	{unix.SYS_TKILL, "tkill", GroupSignal, args(tidArg, sigArg), false, false},
	{unix.SYS_TGKILL, "tgkill", GroupSignal, args(tgidArg, tidArg, sigArg), false, false},
	{unix.SYS_RT_SIGQUEUEINFO, "rt_sigqueueinfo", GroupSignal, args(tgidArg, sigArg, infoArg), false, false},
	{unix.SYS_RT_TGSIGQUEUEINFO, "rt_tgsigqueueinfo", GroupSignal, args(tgidArg, tidArg, sigArg, infoArg), false, false},
	{unix.SYS_PIDFD_SEND_SIGNAL, "pidfd_send_signal", GroupSignal, args(Argument{"pidfd", ArgFD}, sigArg, infoArg, flags), false, false},
}
