package traceview

import (
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

func TestWhat(t *testing.T) {
	for name, tc := range map[string]struct {
		arch, line, want string
	}{
		"open to read":          {"amd64", `"call":"openat","args":{"dirfd":-100,"pathname":"x","flags":"0x80000","mode":"0x1b6"},"path":"/x"`, "/x O_RDONLY|O_CLOEXEC"},
		"open to write":         {"amd64", `"call":"openat","args":{"dirfd":-100,"pathname":"x","flags":"0x241","mode":"0x1b6"},"path":"/x"`, "/x O_WRONLY|O_CREAT|O_TRUNC 0666"},
		"a directory":           {"amd64", `"call":"openat","args":{"dirfd":-100,"pathname":"x","flags":"0x90800","mode":"0x0"},"path":"/x"`, "/x O_RDONLY|O_DIRECTORY|O_NONBLOCK|O_CLOEXEC"},
		"a directory on ARM":    {"arm64", `"call":"openat","args":{"dirfd":-100,"pathname":"x","flags":"0x84800","mode":"0x0"},"path":"/x"`, "/x O_RDONLY|O_DIRECTORY|O_NONBLOCK|O_CLOEXEC"},
		"a file without a name": {"amd64", `"call":"openat","args":{"dirfd":-100,"pathname":"/tmp","flags":"0x410002","mode":"0x180"},"path":"/tmp"`, "/tmp O_RDWR|O_TMPFILE 0600"},
		"unknown flags":         {"amd64", `"call":"open","args":{"pathname":"x","flags":"0x100001002","mode":"0x0"}`, "x O_RDWR|O_DSYNC|0x100000000"},
		"synchronous":           {"amd64", `"call":"open","args":{"pathname":"x","flags":"0x101001"}`, "x O_WRONLY|O_SYNC"},
		"not resolved":          {"amd64", `"call":"unlinkat","args":{"dirfd":5,"pathname":"d e","flags":"0x200"}`, `dirfd=5 "d e" AT_REMOVEDIR`},
		"in the directory":      {"amd64", `"call":"unlinkat","args":{"dirfd":-100,"pathname":"d","flags":"0x0"}`, `AT_FDCWD d`},
		"access":                {"amd64", `"call":"access","args":{"pathname":"/x","mode":"0x6"},"path":"/x"`, "/x R_OK|W_OK"},
		"is it there":           {"amd64", `"call":"faccessat","args":{"dirfd":-100,"pathname":"/x","mode":"0x0"},"path":"/x"`, "/x F_OK"},
		"mkdir":                 {"amd64", `"call":"mkdir","args":{"pathname":"/x","mode":"0x1c0"},"path":"/x"`, "/x 0700"},
		"rename":                {"amd64", `"call":"renameat2","args":{"olddirfd":-100,"oldpath":"a","newdirfd":-100,"newpath":"b\u001b[2J","flags":"0x1"},"path":"/a"`, `/a -> "b\x1b[2J" RENAME_NOREPLACE`},
		"rename elsewhere":      {"amd64", `"call":"renameat","args":{"olddirfd":-100,"oldpath":"a","newdirfd":9,"newpath":"b"},"path":"/a"`, `/a newdirfd=9 -> b`},
		"a path that is a Hex":  {"amd64", `"call":"open","args":{"pathname":"0x1f","flags":"0x0"}`, `0x1f O_RDONLY`},
		"a resolved one":        {"amd64", `"call":"rename","args":{"oldpath":"0x1f","newpath":"0x2"},"path":"/0x1f"`, `/0x1f -> 0x2`},
		"read":                  {"amd64", `"call":"read","args":{"fd":3,"buf":"0x7fff","count":9}`, "fd=3 count=9"},
		"a large count":         {"amd64", `"call":"read","args":{"fd":-1,"count":18446744073709551615}`, "fd=-1 count=18446744073709551615"},
		"fcntl":                 {"amd64", `"call":"fcntl","args":{"fd":3,"cmd":1030,"arg":"0xa"}`, "fd=3 F_DUPFD_CLOEXEC arg=0xa"},
		"an unknown fcntl":      {"amd64", `"call":"fcntl","args":{"fd":3,"cmd":77,"arg":"0x0"}`, "fd=3 cmd=77"},
		"fork":                  {"amd64", `"call":"clone","args":{"flags":"0x1200011"}`, "SIGCHLD|CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID"},
		"a thread":              {"amd64", `"call":"clone","args":{"flags":"0x10100"}`, "CLONE_VM|CLONE_THREAD"},
		"a start":               {"amd64", `"call":"exec","args":{"argv":["sh","-c","echo \"hi\"",""]},"path":"/bin/sh"`, `/bin/sh -c "echo \"hi\"" ""`},
		"another name":          {"amd64", `"call":"exec","args":{"argv":["-sh"]},"path":"/bin/busybox"`, "/bin/busybox (as -sh)"},
		"a start without words": {"amd64", `"call":"exec","path":"/bin/sh"`, "/bin/sh"},
		"a child":               {"amd64", `"call":"fork","args":{"parentHostPid":7}`, "by host pid 7"},
		"an end":                {"amd64", `"call":"exit","args":{"signal":"SIGKILL"},"ret":0`, ""},
		"a signal": {
			"amd64", `"call":"signal","args":{"signal":"SIGTERM","number":15,"code":"SI_USER","result":"delivered","to":"process","from":"process","senderHostPid":7,"senderComm":"my sh"}`,
			`SIGTERM number=15 code=SI_USER result=delivered to=process from=process senderHostPid=7 senderComm="my sh"`,
		},
		"a page fault":          {"amd64", `"call":"fault","args":{"address":"0x7f00","ip":"0x40","access":"write","present":0}`, "address=0x7f00 ip=0x40 access=write present=0"},
		"of a newer tracer":     {"amd64", `"call":"knock","args":{"addr":"10.0.0.1:80","words":["a","b c"],"flags":"0x3"}`, `10.0.0.1:80 words=[a "b c"] 0x3`},
		"a socket":              {"amd64", `"call":"socket","args":{"domain":2,"type":"0x80801","protocol":0},"ret":3,"path":"tcp"`, "tcp SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK"},
		"shutdown":              {"amd64", `"call":"shutdown","args":{"sockfd":3,"how":1},"path":"tcp:10.0.0.1:80"`, "tcp:10.0.0.1:80 sockfd=3 SHUT_WR"},
		"two sockets":           {"amd64", `"call":"socketpair","args":{"domain":1,"type":"0x5","protocol":0,"sv":"[3, 4]"},"path":"unix"`, `unix SOCK_SEQPACKET sv="[3, 4]"`},
		"a socket of a kind":    {"amd64", `"call":"socket","args":{"domain":2,"type":"0xa","protocol":33},"path":"raw"`, "raw 0xa"},
		"connect":               {"amd64", `"call":"connect","args":{"sockfd":3,"addr":"10.0.0.1:80","addrlen":16},"path":"tcp:10.0.0.1:80"`, "tcp:10.0.0.1:80 sockfd=3"},
		"connect, not resolved": {"amd64", `"call":"connect","args":{"sockfd":3,"addr":"unix:/run/a b"}`, `sockfd=3 "unix:/run/a b"`},
		"accept":                {"amd64", `"call":"accept4","args":{"sockfd":3,"addr":"10.0.0.9:4242","addrlen":"0x7ffe","flags":"0x80000"},"path":"tcp:0.0.0.0:80"`, "tcp:0.0.0.0:80 sockfd=3 from 10.0.0.9:4242 SOCK_CLOEXEC"},
		"receive":               {"amd64", `"call":"recvfrom","args":{"sockfd":3,"buf":"0x7f","len":9,"flags":"0x40","src_addr":"10.0.0.9:53","addrlen":"0x7ffe"},"path":"udp"`, "udp sockfd=3 len=9 MSG_DONTWAIT from 10.0.0.9:53"},
		"send":                  {"amd64", `"call":"sendmsg","args":{"sockfd":3,"msg":"0x7f","flags":"0x4000"},"path":"udp"`, "udp sockfd=3 MSG_NOSIGNAL"},
		"a connection": {
			"amd64", `"call":"connection","args":{"local":"10.0.0.2:4000","remote":"10.0.0.1:80","role":"client","sent":5,"received":7,"retransmits":0,"rttNs":12500,"durationNs":1500000,"endedBy":"remote","state":"LAST_ACK"}`,
			"10.0.0.2:4000 -> 10.0.0.1:80 sent=5 received=7 rtt=12.5µs lasted=1.50ms LAST_ACK by remote",
		},
		"one that is open":   {"amd64", `"call":"connection","args":{"local":"10.0.0.2:80","remote":"10.0.0.1:4000","role":"server","sent":5,"received":7,"retransmits":2,"open":true,"state":"ESTABLISHED"}`, "10.0.0.2:80 <- 10.0.0.1:4000 sent=5 received=7 retransmits=2 ESTABLISHED still open"},
		"without a role":     {"amd64", `"call":"connection","args":{"local":"\u001b[2J","remote":"0x1f"}`, `"\x1b[2J" -- ?`},
		"a retransmit":       {"amd64", `"call":"retransmit","args":{"local":"10.0.0.2:80","remote":"10.0.0.1:4000","bytes":1448,"retransmits":3,"state":"ESTABLISHED"}`, "10.0.0.2:80 -- 10.0.0.1:4000 retransmits=3 bytes=1448 ESTABLISHED"},
		"a reset that comes": {"amd64", `"call":"reset","args":{"local":"10.0.0.2:80","remote":"10.0.0.1:4000","by":"remote","state":"ESTABLISHED"}`, "10.0.0.2:80 -- 10.0.0.1:4000 ESTABLISHED by remote"},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := tracefmt.NewReader(strings.NewReader(`{"time":"1970-01-01T00:00:01Z",` + tc.line + "}")).Next()
			if err != nil {
				t.Fatal(err)
			}
			if got := description(line.Record, tc.arch); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestResult(t *testing.T) {
	signal := []tracefmt.Arg{{Name: argSignal, Kind: tracefmt.Text, Text: []byte("SIGKILL")}}
	for name, tc := range map[string]struct {
		record tracefmt.Record
		want   string
	}{
		"a number":          {tracefmt.Record{Call: "read", HasRet: true, Ret: 4096}, "4096"},
		"an error":          {tracefmt.Record{Call: "read", HasRet: true, Ret: -1, Errno: "EIO"}, "EIO"},
		"an unknown error":  {tracefmt.Record{Call: "read", HasRet: true, Ret: -1}, "-1"},
		"an address":        {tracefmt.Record{Call: "mmap", HasRet: true, Ret: 0x7f0000001000}, "0x7f0000001000"},
		"none":              {tracefmt.Record{Call: callExec}, ""},
		"a code":            {tracefmt.Record{Call: callExit, HasRet: true, Ret: 3}, "3"},
		"ended by a signal": {tracefmt.Record{Call: callExit, HasRet: true, Args: signal}, "SIGKILL"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := result(&tc.record); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestTook(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "", 0: "0ns", 999: "999ns", 1000: "1.00µs", 9994: "9.99µs", 9999: "10.0µs", 99960: "100µs", 999_400: "999µs", 999_600: "1.00ms",
		12_345_678: "12.3ms", 999_499_999: "999ms", 999_600_000: "1.00s", time.Hour: "3600s",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%d ns: %s, want %s", d, got, want)
		}
	}
}

// A PID can be reused by another process, and threads are not processes.
func TestProcesses(t *testing.T) {
	const process = `"group":"process","uid":0,"comm":"a"`
	lines := `{"time":"1970-01-01T00:00:01Z","call":"fork","pid":2,"hostPid":8,"tid":2,"hostTid":8,` + process + `,"args":{"parentHostPid":7}}
{"time":"1970-01-01T00:00:02Z","call":"fork","pid":2,"hostPid":8,"tid":3,"hostTid":9,` + process + `,"args":{"parentHostPid":8}}
{"time":"1970-01-01T00:00:03Z","call":"exit","pid":2,"hostPid":8,"tid":3,"hostTid":9,` + process + `,"ret":0}
{"time":"1970-01-01T00:00:04Z","call":"exit","pid":2,"hostPid":8,"tid":2,"hostTid":8,` + process + `,"ret":1}
{"time":"1970-01-01T00:00:05Z","call":"fork","pid":4,"hostPid":10,"tid":4,"hostTid":10,` + process + `,"args":{"parentHostPid":8}}
{"time":"1970-01-01T00:00:06Z","call":"fork","pid":5,"hostPid":8,"tid":5,"hostTid":8,` + process + `,"args":{"parentHostPid":10}}
{"time":"1970-01-01T00:00:07Z","call":"exec","pid":5,"hostPid":8,"tid":5,"hostTid":8,` + process + `,"path":"/b"}
`
	_, s := view(t, nil, NewSource("x", strings.NewReader(lines)))
	want := `
Processes:
PROCESS  STARTED          ENDED WITH   EVENTS  COMMAND
2        00:00:01.000000  1                 4  [a]
4        00:00:05.000000  still there       1    [a]
5        00:00:06.000000  still there       2      /b
`
	if text := s.summary.Text(); !strings.Contains(text, want) {
		t.Errorf("no %s in\n%s", want, text)
	}
}
