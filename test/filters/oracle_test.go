package filters

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

// oracle is a running oracle/oracle.c with its packets.
type oracle struct {
	questions io.Writer
	answers   *bufio.Reader
	packets   int
}

// buildOracle compiles it with Debian's libpcap. Only the static library has the interpreter with metadata.
func buildOracle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "oracle")
	source, err := filepath.Abs("oracle/oracle.c")
	if err != nil {
		t.Fatal(err)
	}
	script := `cd "$1" && ar x "$(gcc -print-file-name=libpcap.a)" bpf_filter.o && gcc -O2 -Wall -Werror -o oracle "$2" bpf_filter.o -lpcap`
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", dir, source).CombinedOutput(); err != nil {
		t.Fatalf("build the oracle (make deps installs gcc and libpcap-dev): %v\n%s", err, out)
	}
	return program
}

func startOracle(t *testing.T, program string, packets []packet) *oracle {
	t.Helper()
	file := filepath.Join(t.TempDir(), "packets")
	var lines strings.Builder
	for _, p := range packets {
		inFile := 1
		if p.sim.VlanPresent == 1 {
			inFile = 0
		}
		fmt.Fprintf(&lines, "%d %d %d %d %x\n", p.sim.Type, p.sim.VlanPresent, p.sim.VlanTag, inFile, p.sim.Data)
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, file)
	command.Stderr = t.Output()
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = command.Wait()
	})
	return &oracle{questions: stdin, answers: bufio.NewReaderSize(stdout, 1<<16), packets: len(packets)}
}

// run returns the verdict of libpcap's interpreter on each packet.
func (o *oracle) run(t *testing.T, program bpfprog.Program) string {
	t.Helper()
	question := fmt.Sprintf("p %d", len(program))
	for _, in := range program {
		question += fmt.Sprintf(" %d %d %d %d", in.Code, in.Jt, in.Jf, in.K)
	}
	return o.ask(t, question)
}

// compile compiles the expression for a file with libpcap. It fails for expressions that only a live interface
// supports.
func (o *oracle) compile(t *testing.T, link pcapfilter.LinkType, expression string) (string, error) {
	t.Helper()
	answer := o.ask(t, fmt.Sprintf("e %d %s", link, expression))
	if why, failed := strings.CutPrefix(answer, "E "); failed {
		return "", fmt.Errorf("compile for a file with libpcap: %s", why)
	}
	return answer, nil
}

func (o *oracle) ask(t *testing.T, question string) string {
	t.Helper()
	if _, err := fmt.Fprintln(o.questions, question); err != nil {
		t.Fatalf("send a question to the oracle: %v", err)
	}
	answer, err := o.answers.ReadString('\n')
	if err != nil {
		t.Fatalf("the oracle did not answer %q: %v", question, err)
	}
	answer = strings.TrimSuffix(answer, "\n")
	if len(answer) != o.packets && !strings.HasPrefix(answer, "E ") {
		t.Fatalf("the oracle answered %q to %q, want a verdict per packet", answer, question)
	}
	return answer
}
