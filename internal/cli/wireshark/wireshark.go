// Package wireshark starts Wireshark on the packets of a pipe.
package wireshark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// ErrMissing says that there is no Wireshark on this machine.
var ErrMissing = errors.New("cannot find Wireshark: install it, or set WIRESHARK to the path of its program")

// Find returns the program that WIRESHARK names, or else the one on the PATH or in its usual place.
func Find() (string, error) {
	if named := os.Getenv("WIRESHARK"); named != "" {
		program, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("WIRESHARK names no program that can be started: %w: set it to the path of Wireshark, or unset it", err)
		}
		return program, nil
	}
	for _, name := range append([]string{"wireshark"}, usualPlaces(runtime.GOOS, os.Getenv)...) {
		if program, err := exec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", ErrMissing
}

// usualPlaces of the program on systems where installers do not put it on the PATH.
func usualPlaces(system string, getenv func(string) string) []string {
	switch system {
	case "darwin":
		return []string{"/Applications/Wireshark.app/Contents/MacOS/Wireshark"}
	case "windows":
		var places []string
		for _, variable := range []string{"ProgramW6432", "ProgramFiles"} {
			if dir := getenv(variable); dir != "" {
				places = append(places, dir+`\Wireshark\Wireshark.exe`)
			}
		}
		return places
	}
	return nil
}

// Viewer is a running Wireshark. Writes to it fail when it has ended.
type Viewer struct {
	pipe   *os.File
	stderr *os.File
	ended  chan struct{}
	err    error
}

// Start starts Wireshark on what is written to the Viewer. It does not end with this program.
func Start(program string) (*Viewer, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start Wireshark: %w", err)
	}
	defer r.Close()
	// A file, because Wireshark may write to it after this program has ended.
	stderr, err := os.CreateTemp("", "sonde-wireshark-*")
	if err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("start Wireshark: %w", err)
	}
	cmd := exec.CommandContext(context.Background(), program, "-k", "-i", "-")
	cmd.Stdin, cmd.Stderr, cmd.SysProcAttr = r, stderr, ownGroup()
	if err := cmd.Start(); err != nil {
		v := &Viewer{pipe: w, stderr: stderr}
		_ = v.Close()
		return nil, fmt.Errorf("start Wireshark: %w", err)
	}
	v := &Viewer{pipe: w, stderr: stderr, ended: make(chan struct{})}
	go func() {
		v.err = cmd.Wait()
		close(v.ended)
	}()
	return v, nil
}

// Write writes packets.
func (v *Viewer) Write(b []byte) (int, error) { return v.pipe.Write(b) }

// Ended is closed when the user has closed Wireshark.
func (v *Viewer) Ended() <-chan struct{} { return v.ended }

// Close ends the packets. Wireshark goes on showing them. The error says why Wireshark has failed, if it has.
func (v *Viewer) Close() error {
	_ = v.pipe.Close()
	defer os.Remove(v.stderr.Name()) // fails on Windows while Wireshark runs
	defer v.stderr.Close()
	select {
	case <-v.ended:
	default:
		return nil
	}
	if v.err == nil {
		return nil
	}
	return fmt.Errorf("Wireshark has ended: %w%s", v.err, lastLine(v.stderr)) //nolint:staticcheck // a name
}

// lastLine returns the last line of a file after a colon; empty if it has none.
func lastLine(f *os.File) string {
	const most = 4 << 10
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	b := make([]byte, min(size, most))
	if _, err := f.ReadAt(b, size-int64(len(b))); err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return ": " + last
	}
	return ""
}
