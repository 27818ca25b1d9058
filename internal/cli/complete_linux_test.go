package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// In a shell on a terminal, the tab key completes commands, and the names of running captures.
func TestCompletionInShells(t *testing.T) {
	for shell, tc := range map[string]struct {
		args  []string
		setUp string
	}{
		"bash": {[]string{"--noprofile", "--norc", "-i"}, "PS1='> '; . /usr/share/bash-completion/bash_completion; . <(kubectl-sonde completion bash)\n"},
		"zsh":  {[]string{"-f", "-i"}, "PS1='> '; autoload -U compinit; compinit -u -D; . <(kubectl-sonde completion zsh)\n"},
	} {
		t.Run(shell, func(t *testing.T) {
			s := newAPIServer(t)
			s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
			dir := t.TempDir()
			if err := os.Symlink(os.Args[0], filepath.Join(dir, "kubectl-sonde")); err != nil {
				t.Fatal(err)
			}
			outside, inside := openPTY(t, 100, 20)
			seen := newOutput()
			go copyTo(seen, outside)
			cmd := exec.CommandContext(t.Context(), shell, tc.args...)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "TERM=dumb", testServer+"="+s.url)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = inside, inside, inside
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			typed := func(text string) {
				t.Helper()
				if _, err := outside.WriteString(text); err != nil {
					t.Fatal(err)
				}
			}
			typed(tc.setUp)
			typed("echo re''ady\n")
			seen.await(t, "ready\r\n")
			typed("kubectl-sonde foll\t")
			seen.await(t, "kubectl-sonde follow ")
			typed("w\t")
			seen.await(t, "web") // zsh shows it behind its own control codes
			typed("\x15exit\n")
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, seen)
			}
		})
	}
}

// copyTo copies what a terminal shows until it is closed.
func copyTo(seen *output, terminal *os.File) {
	b := make([]byte, 4096)
	for {
		n, err := terminal.Read(b)
		_, _ = seen.Write(b[:n])
		if err != nil {
			return
		}
	}
}
