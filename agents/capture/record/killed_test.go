package record

import (
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// killedDir, in the environment, makes TestWriterToBeKilled a process that fills a ring in this folder for ever.
const killedDir = "SONDE_TEST_KILLED_DIR"

const (
	killedFiles = 3
	killedBytes = 1 << 20
	namedFile   = "named.json"
)

func killedConfig(dir string) *Config {
	return &Config{
		Dir: dir, Base: "web", FileMode: 0o600, SnapLen: snapLen, MaxBytes: killedFiles * killedBytes,
		Rotate: &Rotate{MaxBytes: killedBytes, Files: killedFiles},
	}
}

// TestWriterToBeKilled is not a test by itself: TestKilledAtAnyMoment runs it in a child process.
func TestWriterToBeKilled(t *testing.T) {
	dir := os.Getenv(killedDir)
	if dir == "" {
		return
	}
	cfg := killedConfig(dir)
	r := New(cfg, slog.New(slog.DiscardHandler), CreateFile)
	named, err := os.Create(filepath.Join(dir, namedFile))
	if err != nil {
		t.Fatal(err)
	}
	// Like the probe's termination message: one write that is never shorter than the one before.
	cfg.FilesChanged = func() {
		b, err := json.Marshal(r.Account())
		if err == nil {
			_, err = named.WriteAt(append(b, []byte(strings.Repeat(" ", 2048-len(b)))...), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Open(); err != nil {
		t.Fatal(err)
	}
	desc := pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	iface, err := r.Add(desc, InterfaceAccount{Name: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	r.announce()
	for number := uint32(0); !r.Ended(); {
		var b Batch
		for range 3 { // several runs, as in a ring block
			var run []byte
			for range 500 {
				data := make([]byte, 700)
				binary.BigEndian.PutUint32(data, number)
				number++
				run = pcapng.AppendPacket(run, &pcapng.Packet{Data: data, Length: 700, Time: uint64(number)})
			}
			b.Append(run)
		}
		b.recount()
		r.Write(&b)
		r.PublishInterface(iface)
	}
	t.Fatal(r.end.err)
}

// The writer may be killed within a write or between two steps of a rotation. Each file that was named exists. All but
// the last are complete, and the last one is up to its last block. Together they hold the newest packets without a gap.
func TestKilledAtAnyMoment(t *testing.T) {
	const rounds = 14 // two for each number of rotations
	torn, partial := 0, 0
	for round := range rounds {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWriterToBeKilled$")
		cmd.Env = append(os.Environ(), killedDir+"="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		rotations, spin := uint64(1+round%7), rand.IntN(3000)
		await(t, "overwritten files", func() bool { a, ok := readNamed(dir); return ok && a.Overwritten >= rotations*1400 })
		for range spin {
			_, _ = os.Stat(dir)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, as intended
		a, ok := readNamed(dir)
		if !ok {
			t.Fatal("no account")
		}
		wasTorn := checkKilled(t, dir, &a)
		if wasTorn {
			torn++
		}
		if len(a.Files) < killedFiles {
			partial++
		}
	}
	t.Logf("%d of %d were killed within a write, %d within a rotation", torn, rounds, partial)
}

func readNamed(dir string) (a Account, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, namedFile))
	return a, err == nil && json.Unmarshal(b, &a) == nil
}

func checkKilled(t *testing.T, dir string, a *Account) (torn bool) {
	t.Helper()
	var numbers []uint32
	for i, f := range a.Files {
		path := filepath.Join(dir, f.Name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("a named file is missing: %v", err)
		}
		whole := whole(t, b)
		if len(whole) < len(b) {
			torn = true
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		c := readFile(t, path)
		if c.err != nil || len(c.ifaces) != 1 {
			t.Errorf("%s: %v, %d interfaces", f.Name, c.err, len(c.ifaces))
		}
		if last := i == len(a.Files)-1; !last && (len(c.stats) != 1 || len(whole) != len(b)) {
			t.Errorf("%s, which is not the last, has %d statistics and %d of %d bytes are whole", f.Name, len(c.stats), len(whole), len(b))
		}
		for _, p := range c.packets[0] {
			numbers = append(numbers, binary.BigEndian.Uint32(p.Data))
		}
	}
	for i, n := range numbers {
		if n != numbers[0]+uint32(i) {
			t.Fatalf("number %d follows %d", n, numbers[i-1])
		}
	}
	if uint64(len(numbers)) < a.Written {
		t.Errorf("the account claims %d packets, the files hold %d", a.Written, len(numbers))
	}
	checkSizes(t, dir)
	return torn
}

// checkSizes checks that the files with a name are within the limits.
func checkSizes(t *testing.T, dir string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+fileSuffix))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) > killedFiles {
		t.Errorf("%d files, at most %d are allowed", len(paths), killedFiles)
	}
	for _, path := range paths {
		if st, err := os.Stat(path); err != nil || st.Size() > killedBytes {
			t.Errorf("%s: %v, %v; at most %d bytes are allowed", path, st, err, killedBytes)
		}
	}
}

// whole returns the part of a file that a keeper serves.
func whole(t *testing.T, b []byte) []byte {
	t.Helper()
	return b[:pcapng.CompleteLen(strings.NewReader(string(b)), 0, int64(len(b)))]
}
