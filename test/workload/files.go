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

// Used is the line that files prints: what it has really done.
type Used struct {
	Path  string `json:"path"`  // without the number at the end of each file's name
	Count int    `json:"count"` // programs started; each opened, wrote, read and removed a file
	Bytes int    `json:"bytes"` // per file
}

// files starts this program once for each of count files. Each of them opens, writes, reads and removes its file.
func files(f *flag.FlagSet, args []string) error {
	path := f.String("path", "/dev/shm/file-", "path of the files, without their numbers")
	count := f.Int("count", 50, "number of files")
	size := f.Int("size", 100, "bytes in each file")
	asked := f.Bool("when-asked", false, "start at SIGUSR1 and keep running afterwards, as a container's main process does")
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

// file uses one file, with one system call per operation.
func file(f *flag.FlagSet, args []string) error {
	path := f.String("path", "", "path of the file")
	size := f.Int("size", 100, "bytes in the file")
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
