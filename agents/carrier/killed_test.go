package carrier

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killedApp, in the environment, is the address of the app, and makes TestKilledCarrier a carrier.
const killedApp = "SONDE_TEST_KILLED_APP"

// TestKilledCarrier kills a carrier in the middle of a response without a length, of an upload, and of bytes that are not HTTP. Neither the
// caller nor the app sees a regular end.
func TestKilledCarrier(t *testing.T) {
	if address := os.Getenv(killedApp); address != "" {
		f := startWith(t, address, nil, DefaultConnections, byUser("cli", "alice"))
		fmt.Println(f.pod.listener.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	for name, tc := range map[string]struct{ send, answer string }{
		"until close": {request("POST /", "Content-Length: 10") + "12345", "HTTP/1.0 200 OK\r\n\r\nhalf"},
		"no HTTP":     {"SELECT 1\r\n", "1\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			app := serveTCP(t, func(d duplex) {
				_, _ = io.ReadFull(d, make([]byte, len(tc.send)))
				_, _ = io.WriteString(d, tc.answer)
				_, err := d.Read(make([]byte, 1))
				ended <- err
			})
			child := startChild(t, "TestKilledCarrier", nil, killedApp+"="+app)
			c, err := net.Dial("tcp", child.address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(c, tc.send)
			if _, err := io.ReadFull(c, make([]byte, len(tc.answer))); err != nil {
				t.Fatal(err)
			}
			_ = child.process.Kill()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the caller's connection ends with %v", err)
			}
			select {
			case err := <-ended:
				if !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the app's connection ends with %v", err)
				}
			case <-time.After(patience):
				t.Error("the app's connection does not end")
			}
		})
	}
}

// child is a carrier in a process of its own. ended is closed when it has ended.
type child struct {
	address string
	process *os.Process
	ended   chan struct{}
}

// startChild runs a test of this program as a child, with variables in its environment. The child prints the carrier's address, and ends
// with its standard input.
func startChild(t *testing.T, test string, attributes *syscall.SysProcAttr, env ...string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+test+"$")
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = append(os.Environ(), env...), os.Stderr, attributes
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{process: cmd.Process, ended: make(chan struct{})}
	said := bufio.NewReader(out)
	line, err := said.ReadString('\n')
	go func() {
		defer close(c.ended)
		_, _ = io.Copy(io.Discard, said)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = in.Close()
		select {
		case <-c.ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-c.ended
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	c.address = strings.TrimSpace(line)
	return c
}
