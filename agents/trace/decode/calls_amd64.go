package decode

import "golang.org/x/sys/unix"

const (
	fstatat     = unix.SYS_NEWFSTATAT
	fstatatName = "newfstatat"
)

// legacy are calls that newer architectures do not have.
var legacy = []Call{
	{unix.SYS_FORK, "fork", GroupProcess, nil, false, true},
	{unix.SYS_VFORK, "vfork", GroupProcess, nil, false, true},

	{unix.SYS_OPEN, "open", GroupFile, args(pathArg, flags, mode), true, false},
	{unix.SYS_CREAT, "creat", GroupFile, args(pathArg, mode), true, false},
	{unix.SYS_DUP2, "dup2", GroupFile, args(Argument{"oldfd", ArgFD}, Argument{"newfd", ArgInt}), true, false},
	{unix.SYS_STAT, "stat", GroupFile, args(pathArg), false, false},
	{unix.SYS_LSTAT, "lstat", GroupFile, args(pathArg), false, false},
	{unix.SYS_ACCESS, "access", GroupFile, args(pathArg, mode), false, false},
	{unix.SYS_READLINK, "readlink", GroupFile, args(pathArg), false, false},
	{unix.SYS_UNLINK, "unlink", GroupFile, args(pathArg), false, false},
	{unix.SYS_RMDIR, "rmdir", GroupFile, args(pathArg), false, false},
	{unix.SYS_RENAME, "rename", GroupFile, args(Argument{"oldpath", ArgPath}, Argument{"newpath", ArgPath}), false, false},
	{unix.SYS_MKDIR, "mkdir", GroupFile, args(pathArg, mode), false, false},
	{unix.SYS_LINK, "link", GroupFile, args(Argument{"oldpath", ArgPath}, Argument{"newpath", ArgPath}), false, false},
	{unix.SYS_SYMLINK, "symlink", GroupFile, args(linkTarget, Argument{"linkpath", ArgPath}), false, false},
	{unix.SYS_CHMOD, "chmod", GroupFile, args(pathArg, mode), false, false},
	{unix.SYS_CHOWN, "chown", GroupFile, args(pathArg, Argument{"owner", ArgInt}, Argument{"group", ArgInt}), false, false},
	{unix.SYS_LCHOWN, "lchown", GroupFile, args(pathArg, Argument{"owner", ArgInt}, Argument{"group", ArgInt}), false, false},
}
