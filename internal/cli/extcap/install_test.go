package extcap

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func system(goos, folders string, variables map[string]string) System {
	return System{OS: goos, Home: "/home/me", Getenv: func(n string) string { return variables[n] }, Folders: func() string { return folders }}
}

func TestDir(t *testing.T) {
	tests := map[string]struct {
		system System
		want   string
	}{
		"as Wireshark 4.4 says":     {system("linux", "Temp:\t/tmp\nPersonal Extcap path:\t/home/me/.local/lib/wireshark/extcap\n", nil), "/home/me/.local/lib/wireshark/extcap"},
		"as Wireshark 4.0 says":     {system("linux", "Personal configuration:\t/home/me/.config/wireshark\nExtcap path:\t/usr/lib/wireshark/extcap\n", nil), "/home/me/.config/wireshark/extcap"},
		"a path with a colon":       {system("windows", "Personal Extcap path:\tC:\\Users\\me\\extcap\r\n", nil), `C:\Users\me\extcap`},
		"without tshark":            {system("linux", "", nil), "/home/me/.config/wireshark/extcap"},
		"with XDG":                  {system("darwin", "", map[string]string{"XDG_CONFIG_HOME": "/xdg"}), "/xdg/wireshark/extcap"},
		"on Windows without tshark": {system("windows", "", map[string]string{"APPDATA": `C:\Roaming`}), `C:\Roaming\Wireshark\extcap`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.system.Dir(); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// The entry passes arguments and variables through the shell unchanged.
func TestEntry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b")
	program := filepath.Join(t.TempDir(), "it's", "kubectl-sonde")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$KUBECONFIG\"\nfor a; do echo \"$a\"; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := system("linux", "", map[string]string{"KUBECONFIG": "/a b/$HOME'c"})
	path, err := s.Install(dir, s.Entry(program, []string{"KUBECONFIG", "NONE"}))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "--extcap-capture-filter", "tcp port 80").Output()
	if want := "/a b/$HOME'c\nextcap\nrun\n--extcap-capture-filter\ntcp port 80\n"; string(out) != want || err != nil {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
	if got := system("windows", "", map[string]string{"PATH": `C:\a%b`}).Entry(`C:\x\kubectl-sonde.exe`, []string{"PATH"}); !strings.Contains(got, "set \"PATH=C:\\a%%b\"\r\n\"C:\\x\\kubectl-sonde.exe\" extcap run %*\r\n") {
		t.Errorf("on Windows %q", got)
	}
}

func TestUninstall(t *testing.T) {
	s, dir := system("linux", "", nil), t.TempDir()
	if path, err := s.Uninstall(dir); path != "" || err != nil {
		t.Errorf("without an entry: %q, %v", path, err)
	}
	for range 2 {
		if _, err := s.Install(dir, s.Entry("/bin/x", nil)); err != nil {
			t.Fatal(err)
		}
	}
	if path, err := s.Uninstall(dir); path != filepath.Join(dir, "sonde") || err != nil {
		t.Errorf("%q, %v", path, err)
	}
	other := filepath.Join(dir, "sonde")
	if err := os.WriteFile(other, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(dir, "x"); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("another program is replaced: %v", err)
	}
	if _, err := s.Uninstall(dir); err == nil {
		t.Error("another program is removed")
	}
}
