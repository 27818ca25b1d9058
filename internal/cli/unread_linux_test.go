package cli

import (
	"errors"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/report"
)

// The kernel sends SIGPIPE also for a connection that its peer has ended, such as one to the developer's process.
func TestInterceptSurvivesABrokenConnection(t *testing.T) {
	c := newInterceptCluster(t)
	r := c.start("intercept", "deploy/web", "--port", "8080", "--to", echoServer(t))
	r.errOut.await(t, "web-1 on n1: Active")
	breakConnection(t)
	time.Sleep(100 * time.Millisecond) // for the signal
	if got := c.say(c.peer(c.carrier), "hello"); got != "laptop hello" || c.left() != 1 {
		t.Errorf("read %q, and %d InterceptRequests are left:\n%s", got, c.left(), r.errOut)
	}
	r.signals <- os.Interrupt
	r.await(t, report.ExitOK)
}

// breakConnection writes to a TCP connection until the write fails with EPIPE.
func breakConnection(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = far.Close()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := near.Write([]byte("x")); errors.Is(err, syscall.EPIPE) {
			return
		}
	}
	t.Fatal("no write fails")
}

// unreadFrom is an output whose reader ends when it has a text, as head does.
type unreadFrom struct {
	*output
	text string
}

func (u unreadFrom) Write(b []byte) (int, error) {
	if strings.Contains(u.String(), u.text) {
		return 0, &os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}
	}
	return u.output.Write(b)
}

func TestInterceptEndsWithTheReaderOfItsOutput(t *testing.T) {
	signal.Reset(syscall.SIGPIPE) // another test may have ignored it
	c := newInterceptCluster(t)
	r := startWith(t, &apiServer{url: c.url}, func(o *Options) { o.Streams.ErrOut = unreadFrom{o.Streams.ErrOut.(*output), "Active"} },
		"intercept", "deploy/web", "--port", "8080", "--to", echoServer(t))
	r.await(t, report.ExitOK)
	if c.left() != 0 {
		t.Error("the InterceptRequest is still there")
	}
	if !signal.Ignored(syscall.SIGPIPE) {
		t.Error("SIGPIPE ends the plugin before it has deleted the InterceptRequest")
	}
}

// stuckFrom is an output that blocks once it has a text, until read is closed.
type stuckFrom struct {
	*output
	text string
	read chan struct{}
}

func (s stuckFrom) Write(b []byte) (int, error) {
	if strings.Contains(s.String(), s.text) {
		<-s.read
	}
	return s.output.Write(b)
}

// TestInterceptEndsWithAFullOutput: Ctrl-C ends the intercept while its output is blocked, as after Ctrl-S on a terminal.
func TestInterceptEndsWithAFullOutput(t *testing.T) {
	c := newInterceptCluster(t)
	read := make(chan struct{})
	r := startWith(t, &apiServer{url: c.url}, func(o *Options) { o.Streams.ErrOut = stuckFrom{o.Streams.ErrOut.(*output), "Active", read} },
		"intercept", "deploy/web", "--port", "8080", "--to", echoServer(t))
	r.errOut.await(t, "Active")
	c.later(func(o *v1alpha1.InterceptRequest) { o.Status.Pods[0].Message = "a new line" })
	time.Sleep(2 * refresh) // until the plugin writes it
	r.signals <- os.Interrupt
	c.awaitLeft(0)
	close(read)
	r.await(t, report.ExitOK)
	r.errOut.await(t, "Ended: the app answers")
}
