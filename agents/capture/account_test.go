package capture

import (
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// What is said of the engine stays, whatever happens to files and interfaces.
func TestAccountSaysHowPacketsAreTaken(t *testing.T) {
	cfg := &Config{Dir: t.TempDir(), Base: "web", SnapLen: DefaultSnapLen, FileMode: defaultFileMode}
	r := newRecorder(cfg, nil, createFile)
	r.takenBy(ByAFPacket, "no right to load programs")
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if _, err := r.add(pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth0"}), InterfaceAccount{Name: "eth0"}); err != nil {
		t.Fatal(err)
	}
	r.publish()
	a := r.Account()
	if a.Engine != ByAFPacket || a.EngineMessage != "no right to load programs" || len(a.Interfaces) != 1 {
		t.Errorf("account %+v", a)
	}
}
