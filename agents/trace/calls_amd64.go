package trace

import "golang.org/x/sys/unix"

const (
	fstatat     = unix.SYS_NEWFSTATAT
	fstatatName = "newfstatat"
)

// legacy are calls that newer architectures do not have.
var legacy = []call{
	{unix.SYS_FORK, "fork", GroupProcess, nil, false, true},
	{unix.SYS_VFORK, "vfork", GroupProcess, nil, false, true},

	{unix.SYS_OPEN, "open", GroupFile, sig(pathArg, flags, mode), true, false},
	{unix.SYS_CREAT, "creat", GroupFile, sig(pathArg, mode), true, false},
	{unix.SYS_DUP2, "dup2", GroupFile, sig(argument{"oldfd", argFD}, argument{"newfd", argInt}), true, false},
	{unix.SYS_STAT, "stat", GroupFile, sig(pathArg), false, false},
	{unix.SYS_LSTAT, "lstat", GroupFile, sig(pathArg), false, false},
	{unix.SYS_ACCESS, "access", GroupFile, sig(pathArg, mode), false, false},
	{unix.SYS_READLINK, "readlink", GroupFile, sig(pathArg), false, false},
	{unix.SYS_UNLINK, "unlink", GroupFile, sig(pathArg), false, false},
	{unix.SYS_RMDIR, "rmdir", GroupFile, sig(pathArg), false, false},
	{unix.SYS_RENAME, "rename", GroupFile, sig(argument{"oldpath", argPath}, argument{"newpath", argPath}), false, false},
	{unix.SYS_MKDIR, "mkdir", GroupFile, sig(pathArg, mode), false, false},
	{unix.SYS_LINK, "link", GroupFile, sig(argument{"oldpath", argPath}, argument{"newpath", argPath}), false, false},
	{unix.SYS_SYMLINK, "symlink", GroupFile, sig(argument{"target", argPath}, argument{"linkpath", argPath}), false, false},
	{unix.SYS_CHMOD, "chmod", GroupFile, sig(pathArg, mode), false, false},
	{unix.SYS_CHOWN, "chown", GroupFile, sig(pathArg, argument{"owner", argInt}, argument{"group", argInt}), false, false},
	{unix.SYS_LCHOWN, "lchown", GroupFile, sig(pathArg, argument{"owner", argInt}, argument{"group", argInt}), false, false},
}
