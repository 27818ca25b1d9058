package host

import (
	"os"
	"path/filepath"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// Configuration of the benchmark's probes: the capture's UID, the snap length in bytes, and a duration that no run
// reaches.
const (
	CaptureUID  = "bench"
	DefaultSnap = 262144
	Longest     = "1h"
)

// Probe is the agent's probe, which runs as in its Pod. A directory holds its volumes.
type Probe struct {
	Agent   int // its process
	Results string
	Control string
	Said    Output // on standard error
}

// NewProbe returns a probe with its volumes below dir.
func NewProbe(dir string) Probe {
	return Probe{Results: filepath.Join(dir, "results"), Control: filepath.Join(dir, "control")}
}

// Account reads the latest account of the probe.
func (p *Probe) Account() (account.Account, error) {
	b, err := os.ReadFile(filepath.Join(p.Results, captureconfig.ProgressFile))
	if err != nil {
		return account.Account{}, err
	}
	return account.Parse(b)
}

// PID of the probe.
func (p *Probe) PID() int { return p.Agent }
