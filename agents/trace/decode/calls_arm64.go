package decode

import "golang.org/x/sys/unix"

const (
	fstatat     = unix.SYS_FSTATAT
	fstatatName = "newfstatat"
)

// legacy: this architecture has none.
var legacy []Call
