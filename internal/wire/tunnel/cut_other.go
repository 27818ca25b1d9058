//go:build !linux

package tunnel

import "syscall"

// CutAfter is not known on this system: an end that is no regular one may look like one.
func CutAfter(syscall.Conn, uint64) bool { return false }
