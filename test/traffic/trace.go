package traffic

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Prices returns the trace of a service with three workers during 20 s. From second 8 on, for 4 s, its disk is slow. A cache that
// it asks does not exist.
func Prices() []byte {
	s := &service{random: rand.New(rand.NewPCG(8, 4))}
	b, err := tracefmt.AppendHeader(nil, tracefmt.Header{
		Namespace: "shop", Target: "Deployment/prices", JobID: "abcd", Pod: "prices-7d9c5b6f4-2xkqp", PodUID: "9c7e", Node: "n2", Arch: "amd64",
		Groups: []string{"process", "file", "io", "network"}, Durations: true,
	})
	if err != nil {
		panic(err) // a header of texts
	}
	s.bytes = b
	s.start()
	for at := 20 * time.Millisecond; at < 20*time.Second; at += time.Duration(15+s.random.IntN(50)) * time.Millisecond {
		s.now = Start.Add(at)
		s.request(uint32(2+s.random.IntN(3)), at >= 8*time.Second && at < 12*time.Second)
	}
	s.now = Start.Add(20 * time.Second)
	s.connection("10.96.14.7:5432", 61_440, 1_843_200, 3, 740*time.Microsecond, "")
	s.connection("10.96.77.1:6379", 0, 0, 0, 0, "ECONNREFUSED")
	s.bytes, err = tracefmt.AppendAccount(s.bytes, tracefmt.Account{Written: s.written, Complete: true, Reason: "Duration"})
	if err != nil {
		panic(err) // an account of texts
	}
	return s.bytes
}

type service struct {
	bytes   []byte
	encoder tracefmt.Encoder
	random  *rand.Rand
	now     time.Time
	written uint64
}

// hostPIDs are far from those in the container.
const hostPIDs = 24_780

func (s *service) event(pid uint32, call, group string, r tracefmt.Record) {
	s.now = s.now.Add(max(r.Took, 0) + 20*time.Microsecond)
	r.Time, r.Call, r.Group, r.Container = s.now, call, group, "prices"
	r.PID, r.TID, r.HostPID, r.HostTID = pid, pid, hostPIDs+pid, hostPIDs+pid
	r.UID, r.Comm = 10001, []byte("prices")
	s.bytes = s.encoder.Append(s.bytes, &r)
	s.written++
}

// start begins the service and its workers.
func (s *service) start() {
	s.now = Start
	exec := func(pid uint32, args string) {
		argv := []byte("prices\x00" + args + "\x00")
		s.event(pid, "exec", "process", tracefmt.Record{Took: -1, Path: []byte("/srv/prices"), Args: []tracefmt.Arg{{Name: "argv", Kind: tracefmt.List, Text: argv}}})
	}
	exec(1, "--workers=3")
	for pid := uint32(2); pid <= 4; pid++ {
		s.event(pid, "fork", "process", tracefmt.Record{Took: -1, Args: []tracefmt.Arg{{Name: "parentHostPid", Kind: tracefmt.Unsigned, Number: hostPIDs + 1}}})
		exec(pid, fmt.Sprintf("--worker=%d", pid-1))
	}
}

// request is what a worker does for one request.
func (s *service) request(pid uint32, slow bool) {
	us := func(low, high int) time.Duration {
		return time.Duration(low+s.random.IntN(high-low)) * time.Microsecond
	}
	call := func(name, group, path string, ret int64, errno string, took time.Duration) {
		s.event(pid, name, group, tracefmt.Record{HasRet: true, Ret: ret, Errno: errno, Took: took, Path: []byte(path)})
	}
	call("epoll_wait", "network", "", 1, "", us(4_000, 40_000))
	call("openat", "file", "/etc/prices/override.json", -1, "ENOENT", us(4, 20))
	call("openat", "file", "/var/lib/prices/prices.db", 9, "", us(6, 40))
	call("pread64", "io", "/var/lib/prices/prices.db", 4096, "", us(20, 200))
	call("connect", "network", "tcp:10.96.77.1:6379", -1, "ECONNREFUSED", us(80, 400))
	call("write", "io", "/var/lib/prices/journal", 512, "", us(5, 30))
	sync := us(700, 3_000)
	if slow {
		sync = us(60_000, 480_000)
	}
	call("fsync", "io", "/var/lib/prices/journal", 0, "", sync)
	call("sendto", "network", "tcp:10.32.3.5:41000", 800, "", us(8, 40))
	call("close", "file", "/var/lib/prices/prices.db", 0, "", us(1, 4))
}

func (s *service) connection(remote string, sent, received, retransmits int64, rtt time.Duration, errno string) {
	number := func(name string, n int64) tracefmt.Arg {
		return tracefmt.Arg{Name: name, Kind: tracefmt.Unsigned, Number: n}
	}
	text := func(name, value string) tracefmt.Arg {
		return tracefmt.Arg{Name: name, Kind: tracefmt.Text, Text: []byte(value)}
	}
	s.event(2, "connection", "network", tracefmt.Record{
		Took: -1, Errno: errno, Args: []tracefmt.Arg{
			text("local", "10.32.2.40:40112"), text("remote", remote), text("role", "client"), number("sent", sent), number("received", received),
			number("retransmits", retransmits), number("rttNs", int64(rtt)),
		},
	})
}
