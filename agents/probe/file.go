package probe

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/version"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	fileSuffix = ".pcapng"
	// maxFileBase is the longest base of a file name: 255 bytes less the suffix and the dot of its temporary name.
	// maxRingBase is shorter: an account names all files of a ring, with their numbers, and its size is bounded.
	maxFileBase = 254 - len(fileSuffix)
	maxRingBase = account.MaxFileName - len("-4294967295") - len(fileSuffix)
)

// fileBase names the file <pod>-<jobId>. A name of more than limit bytes is cut, and gets a hash of the Pod's name.
func fileBase(pod, jobID string, limit int) string {
	base := pod + "-" + jobID
	if len(base) <= limit {
		return base
	}
	sum := sha256.Sum256([]byte(pod))
	tail := "-" + hex.EncodeToString(sum[:4]) + "-" + jobID
	return pod[:limit-len(tail)] + tail
}

// section is the file's header: who requested the capture, its target and its filter.
func section(cfg *captureconfig.Config, o *Options) pcapng.Section {
	filter := cfg.Filter
	if filter == "" {
		filter = "none, every packet was wanted"
	}
	return pcapng.Section{
		Hardware:    runtime.GOARCH,
		OS:          kernelRelease(),
		Application: "sonde " + version.Version,
		Comments: []string{
			"requester: " + cfg.Requester,
			fmt.Sprintf("capture: %s %s/%s, uid %s, jobId %s", cfg.Kind, cfg.Namespace, cfg.Name, cfg.UID, cfg.JobID),
			fmt.Sprintf("target: %s in namespace %s, pod %s, uid %s, node %s", cfg.Target, cfg.TargetNamespace, o.PodName, o.PodUID, o.Node),
			"filter: " + filter,
		},
	}
}

// kernelRelease returns the name and release of the running kernel, like "Linux 6.12.0".
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// socketFilters reads the compiled filters, one for each link type. Without any it returns nil, which accepts
// everything.
func socketFilters(programs map[int32]string) (map[pcapng.LinkType]bpfprog.Program, error) {
	if len(programs) == 0 {
		return nil, nil
	}
	filters := make(map[pcapng.LinkType]bpfprog.Program, len(programs))
	for link, text := range programs {
		if link < 0 || link > 1<<16-1 {
			return nil, fmt.Errorf("read filter: %d is not a link type", link)
		}
		program, err := bpfprog.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("read filter of link type %d: %w", link, err)
		}
		filters[pcapng.LinkType(link)] = program
	}
	return filters, nil
}
