package extcap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// mark is in each entry of ours, so that uninstall deletes no other program.
const mark = "kubectl sonde extcap"

// System is what decides where the entry is, and how it is written.
type System struct {
	// OS as in runtime.GOOS.
	OS     string
	Getenv func(string) string
	// Home directory.
	Home string
	// Folders returns what "tshark -G folders" prints; empty without tshark.
	Folders func() string
}

// Dir returns Wireshark's personal extcap folder: as tshark says, or else where Wireshark has looked since its version 3.
func (s System) Dir() string {
	folders := map[string]string{}
	for line := range strings.Lines(s.Folders()) {
		if name, path, ok := strings.Cut(line, ":"); ok {
			folders[strings.ToLower(name)] = strings.TrimSpace(path)
		}
	}
	if dir := folders["personal extcap path"]; dir != "" {
		return dir
	}
	if dir := folders["personal configuration"]; dir != "" {
		return filepath.Join(dir, "extcap")
	}
	config := s.Getenv("XDG_CONFIG_HOME")
	switch {
	case s.OS == "windows":
		config = s.Getenv("APPDATA")
		return config + `\Wireshark\extcap`
	case config == "":
		config = filepath.Join(s.Home, ".config")
	}
	return filepath.Join(config, "wireshark", "extcap")
}

// Folders runs tshark, which is installed beside Wireshark. It returns an empty text if that fails.
func Folders(ctx context.Context) string {
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "tshark", "-G", "folders").Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// name of the entry.
func (s System) name() string {
	if s.OS == "windows" {
		return "sonde.bat"
	}
	return "sonde"
}

// Entry is the program that Wireshark calls: a script that calls the plugin at the path program. A Wireshark that was started from a desktop
// lacks the environment of a shell, so the entry sets those variables that are not empty.
func (s System) Entry(program string, variables []string) string {
	var b strings.Builder
	if s.OS == "windows" {
		b.WriteString("@echo off\r\nrem " + mark + "\r\n")
		for _, name := range variables {
			if v := s.Getenv(name); v != "" {
				b.WriteString(`set "` + name + "=" + strings.ReplaceAll(v, "%", "%%") + "\"\r\n")
			}
		}
		b.WriteString(`"` + strings.ReplaceAll(program, "%", "%%") + "\" extcap run %*\r\n")
		return b.String()
	}
	b.WriteString("#!/bin/sh\n# " + mark + "\n")
	for _, name := range variables {
		if v := s.Getenv(name); v != "" {
			b.WriteString("export " + name + "=" + quote(v) + "\n")
		}
	}
	b.WriteString("exec " + quote(program) + " extcap run \"$@\"\n")
	return b.String()
}

// quote quotes a text for sh.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Install writes the entry into a folder, and returns its path. It replaces one of ours, and no other program.
func (s System) Install(dir, entry string) (string, error) {
	path := filepath.Join(dir, s.name())
	if _, err := s.ours(path); err != nil {
		return "", err
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(entry), 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("install into Wireshark: %w: choose a folder that you may write with --dir", err)
	}
	return path, nil
}

// Uninstall removes the entry from a folder, and returns its path; empty if there is none.
func (s System) Uninstall(dir string) (string, error) {
	path := filepath.Join(dir, s.name())
	found, err := s.ours(path)
	if err != nil || !found {
		return "", err
	}
	if err := os.Remove(path); err != nil {
		return "", fmt.Errorf("uninstall from Wireshark: %w", err)
	}
	return path, nil
}

// ours reports whether there is a file. One that is not ours is an error.
func (s System) ours(path string) (found bool, err error) {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the entry in Wireshark: %w", err)
	case !strings.Contains(string(b), mark):
		return false, fmt.Errorf("%s is another program: move it, or choose a folder with --dir", path)
	}
	return true, nil
}
