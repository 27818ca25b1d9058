package agentjob

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// DiskFloorFlag is the name of the manager's flag.
const DiskFloorFlag = "disk-floor"

// maxPercent leaves some space for captures.
const maxPercent = 90

// DefaultDiskFloor is above the parts at which a kubelet begins to evict by default, so that a capture ends before other Pods are evicted: 10% of
// its own file system (nodefs.available), and 15% of that with the images (imagefs.available). Most nodes have both on one.
var DefaultDiskFloor = DiskFloor{percent: 17}

// DiskFloor is the part of a node's disk that captures leave free, as a flag's value. The zero value leaves none.
type DiskFloor struct {
	percent, bytes int64
}

// String writes what Set reads.
func (f *DiskFloor) String() string {
	switch {
	case f == nil || f.percent == 0 && f.bytes == 0:
		return "0"
	case f.percent > 0:
		return strconv.FormatInt(f.percent, 10) + "%"
	default:
		return resource.NewQuantity(f.bytes, resource.BinarySI).String()
	}
}

// Set reads a part like 17%, a quantity like 10Gi, or 0 for none.
func (f *DiskFloor) Set(s string) error {
	const want = "write a part of the disk from 0% to 90%, like 17%, a quantity, like 10Gi, or 0 for none"
	if part, ok := strings.CutSuffix(s, "%"); ok {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n < 0 || n > maxPercent {
			return fmt.Errorf("%q: %s", s, want)
		}
		*f = DiskFloor{percent: n}
		return nil
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return fmt.Errorf("%q: %s", s, want)
	}
	n, ok := q.AsInt64()
	if !ok || n < 0 {
		return fmt.Errorf("%q: %s", s, want)
	}
	*f = DiskFloor{bytes: n}
	return nil
}

// Config returns the floor for a probe's configuration; nil if it is zero.
func (f DiskFloor) Config() *captureconfig.Floor {
	if f.percent == 0 && f.bytes == 0 {
		return nil
	}
	return &captureconfig.Floor{Percent: f.percent, Bytes: f.bytes}
}
