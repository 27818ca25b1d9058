package carrier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/restriction"
)

// restrictedVariable makes the test's binary restrict itself, and report what it can still do.
const restrictedVariable = "SONDE_TEST_RESTRICTED"

func TestMain(m *testing.M) {
	if to := os.Getenv(restrictedVariable); to != "" {
		if err := beRestricted(to); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// abilities of a restricted process, by the error of each attempt.
type abilities struct {
	InForce restriction.InForce
	Errors  map[string]string
}

// beRestricted takes the address of Stowaway and of another port.
func beRestricted(addresses string) error {
	stowaway, other, _ := strings.Cut(addresses, ",")
	a := abilities{Errors: map[string]string{}}
	var err error
	if a.InForce, err = Restrict(stowaway); err != nil {
		return err
	}
	attempt := func(name string, err error) {
		a.Errors[name] = ""
		switch {
		case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
			a.Errors[name] = "refused"
		case err != nil:
			a.Errors[name] = err.Error()
		}
	}
	dial := func(address string) error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	attempt("dial Stowaway", dial(stowaway))
	attempt("dial another port", dial(other))
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // Landlock does not know MPTCP
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err == nil {
		_ = l.Close()
	}
	attempt("listen", err)
	_, err = net.LookupHost("localhost")
	attempt("resolve", err)
	_, err = os.ReadFile("/etc/passwd")
	attempt("read a file", err)
	_, err = os.ReadDir("/")
	attempt("read a folder", err)
	attempt("write a file", os.WriteFile("/tmp/sonde-carrier-test", nil, 0o600))
	attempt("start a program", exec.Command("/bin/true").Run())
	return json.NewEncoder(os.Stdout).Encode(&a)
}

// TestRestrict checks what a taken-over carrier can still do: dial Stowaway's port and resolve its name.
func TestRestrict(t *testing.T) {
	stowaway, other := listen(t), listen(t)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(stowaway.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(executable)
	command.Env = append(os.Environ(), restrictedVariable+"=localhost:"+port+","+other.Addr().String())
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got abilities
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("in force: %+v", got.InForce)
	if !got.InForce.Files || got.InForce.Landlock < restriction.VersionTCP {
		t.Skipf("this kernel restricts too little: %+v", got.InForce)
	}
	const refused = "refused"
	want := map[string]string{
		"dial Stowaway": "", "resolve": "", "dial another port": refused, "listen": refused, "read a file": refused, "read a folder": refused,
		"write a file": refused, "start a program": refused,
	}
	if diff := cmp.Diff(want, got.Errors); diff != "" {
		t.Errorf("a restricted carrier (-want +got):\n%s", diff)
	}
}

func TestRestrictNeedsAnAddress(t *testing.T) {
	for _, address := range []string{"stowaway", "stowaway:", "stowaway:http", "stowaway:70000"} {
		if _, err := Restrict(address); err == nil {
			t.Errorf("%q is taken", address)
		}
	}
}
