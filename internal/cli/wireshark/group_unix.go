//go:build !windows

package wireshark

import "syscall"

// ownGroup keeps the Ctrl-C that ends the stream from Wireshark, which shows the packets so far.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
