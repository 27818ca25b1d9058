package decode

import "golang.org/x/sys/unix"

const (
	fstatat     = unix.SYS_FSTATAT
	fstatatName = "newfstatat"
)

// legacy is empty: arm64 has no such calls.
var legacy []Call
