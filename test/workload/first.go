package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"syscall"
	"time"
)

// First is the line that first prints: what it did at its start. The name distinguishes its Pod from all others.
type First struct {
	Name    string    `json:"name"`    // one of the program's arguments
	Path    string    `json:"path"`    // the file that it opened
	Address string    `json:"address"` // the address that it connected to
	At      time.Time `json:"at"`      // when its first line was executed
}

// first makes the calls that a trace of a new Pod must not miss. It runs under a name of its own and opens a file of
// that name, which does not exist. It connects over UDP to an address derived from the name, so nothing leaves the Pod.
// Then it keeps running.
func first(f *flag.FlagSet, args []string) error {
	at := time.Now()
	name := f.String("name", "", "unique name of this process")
	if err := f.Parse(args); err != nil {
		return err
	}
	path := "/" + *name
	if fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
		return fmt.Errorf("open %s: got descriptor %d, want no such file", path, fd)
	}
	sum := fnv.New32a()
	sum.Write([]byte(*name))
	n := sum.Sum32()
	to := syscall.SockaddrInet4{Port: 9, Addr: [4]byte{127, byte(n >> 16), byte(n >> 8), byte(n) | 1}}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if err := syscall.Connect(fd, &to); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	address := fmt.Sprintf("%d.%d.%d.%d:%d", to.Addr[0], to.Addr[1], to.Addr[2], to.Addr[3], to.Port)
	if err := json.NewEncoder(os.Stdout).Encode(First{Name: *name, Path: path, Address: address, At: at}); err != nil {
		return err
	}
	return idle(f, nil)
}
