package record

import (
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// The engine's name and message survive changes of files and interfaces.
func TestAccountKeepsItsEngine(t *testing.T) {
	cfg := &Config{Dir: t.TempDir(), Base: "web", SnapLen: snapLen, FileMode: 0o640}
	r := New(cfg, nil, CreateFile)
	r.SetEngine("afpacket", "no right to load programs")
	if err := r.Open(); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Add(pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth0"}), InterfaceAccount{Name: "eth0"}); err != nil {
		t.Fatal(err)
	}
	r.Publish()
	a := r.Account()
	if a.Engine != "afpacket" || a.EngineMessage != "no right to load programs" || len(a.Interfaces) != 1 {
		t.Errorf("account %+v", a)
	}
}
