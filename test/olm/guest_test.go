//go:build olm

package olm

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"
)

// controlPlane is the address of guests inside the cluster.
const controlPlane = "10.99.0.10"

// guest is a program of OLM beside the cluster's control plane.
type guest struct {
	name  string
	cmd   *osexec.Cmd
	ended chan struct{}
}

// startGuest starts a program of OLM, which ends with the test at the latest. The configuration in its home says that
// images need no signature, and where the cluster's registry is.
func startGuest(t *testing.T, program string, args ...string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(logs, program+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// Only the program gets this home: the cluster's own program finds its files by HOME.
	argv := append([]string{"guest", "--", "env", "HOME=" + guestHome(t), filepath.Join(programs, program)}, args...)
	cmd := osexec.Command(cluster.Command, argv...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g := &guest{name: program, cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the log says how it ended
		close(g.ended)
	}()
	t.Cleanup(func() { g.stop(t) })
}

// stop ends the program, and logs where its output is if the test has failed.
func (g *guest) stop(t *testing.T) {
	t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("%s had ended before the test did: %v", g.name, err)
	}
	select {
	case <-g.ended:
	case <-time.After(5 * time.Second):
		_ = g.cmd.Process.Kill()
		<-g.ended
	}
	if t.Failed() {
		t.Logf("the output of %s is in %s", g.name, filepath.Join(logs, g.name+".log"))
	}
}

// guestHome returns a home directory with the configuration of images that opm and OLM v1 look for.
func guestHome(t *testing.T) string {
	t.Helper()
	home := filepath.Join(logs, "home")
	dir := filepath.Join(home, ".config", "containers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"policy.json": `{"default":[{"type":"insecureAcceptAnything"}]}`,
		"registries.conf": `[[registry]]
prefix = "quay.io/sonde"
location = "` + controlPlane + `:5000/sonde"
insecure = true
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return home
}
