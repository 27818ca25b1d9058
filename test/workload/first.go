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

// First is what first prints: the truth about what it did at once, by which its Pod is known from all others.
type First struct {
	Name    string    `json:"name"`    // among the program's arguments
	Path    string    `json:"path"`    // of the file that it opened
	Address string    `json:"address"` // that it connected to
	At      time.Time `json:"at"`      // when its first line ran
}

// first does what must not be missed of a Pod: it is started with a name of its own, opens a file of that name, which is
// not there, and connects to an address of that name, by UDP, so that nothing leaves the Pod. Then it stays.
func first(f *flag.FlagSet, args []string) error {
	at := time.Now()
	name := f.String("name", "", "what nobody else is called")
	if err := f.Parse(args); err != nil {
		return err
	}
	path := "/" + *name
	if fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
		return fmt.Errorf("open %s: it is there, descriptor %d", path, fd)
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
