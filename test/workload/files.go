package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
)

// Used is what files prints: the truth about what was done.
type Used struct {
	Path  string `json:"path"`  // without the number that each file has behind it
	Count int    `json:"count"` // of programs started, and of files that each opened, wrote, read and removed
	Bytes int    `json:"bytes"` // in each file
}

// files starts this program again for each of so many files, which opens, writes, reads and removes it.
func files(f *flag.FlagSet, args []string) error {
	path := f.String("path", "/dev/shm/file-", "path of the files, without their numbers")
	count := f.Int("count", 50, "how many")
	size := f.Int("size", 100, "bytes in each")
	asked := f.Bool("when-asked", false, "begin at SIGUSR1, and stay afterwards: as a container's main process")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *asked {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGUSR1)
		<-c
	}
	for i := range *count {
		//nolint:noctx // lives as long as this process
		cmd := exec.Command("/proc/self/exe", "file", "-path", *path+strconv.Itoa(i), "-size", strconv.Itoa(*size))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("file %d: %w: %s", i, err, out)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(Used{Path: *path, Count: *count, Bytes: *size}); err != nil || !*asked {
		return err
	}
	return idle(f, nil)
}

// file uses one, with one system call for each thing that it does.
func file(f *flag.FlagSet, args []string) error {
	path := f.String("path", "", "path of the file")
	size := f.Int("size", 100, "bytes in it")
	if err := f.Parse(args); err != nil {
		return err
	}
	fd, err := syscall.Open(*path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	b := make([]byte, *size)
	if n, err := syscall.Write(fd, b); err != nil || n != len(b) {
		return fmt.Errorf("write: %d bytes, %w", n, err)
	}
	if n, err := syscall.Pread(fd, b, 0); err != nil || n != len(b) {
		return fmt.Errorf("read: %d bytes, %w", n, err)
	}
	return errors.Join(os.NewSyscallError("close", syscall.Close(fd)), os.NewSyscallError("unlink", syscall.Unlink(*path)))
}
