package wireshark

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// ownGroup keeps the Ctrl-C that ends the stream from Wireshark, which shows the packets so far.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}
