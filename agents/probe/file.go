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
	// maxFileBase is what the longest file name (255 bytes) leaves for the base, besides the dot with which it is hidden
	// while it is made; maxRingBase what an account has room for, which names all files of a ring, with their numbers.
	maxFileBase = 254 - len(fileSuffix)
	maxRingBase = account.MaxFileName - len("-4294967295") - len(fileSuffix)
)

// fileBase names the file <pod>-<jobId>. A name of more than most bytes is cut, with a hash of what it was.
func fileBase(pod, jobID string, most int) string {
	base := pod + "-" + jobID
	if len(base) <= most {
		return base
	}
	sum := sha256.Sum256([]byte(pod))
	tail := "-" + hex.EncodeToString(sum[:4]) + "-" + jobID
	return pod[:most-len(tail)] + tail
}

// section says in the file who asked for what, where it was taken and by which filter.
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

// socketFilters reads the compiled filters, one for each link type. None at all accepts everything, and so does nil.
func socketFilters(programs map[int32]string) (map[pcapng.LinkType]bpfprog.Program, error) {
	if len(programs) == 0 {
		return nil, nil
	}
	filters := make(map[pcapng.LinkType]bpfprog.Program, len(programs))
	for link, text := range programs {
		if link < 0 || link > 1<<16-1 {
			return nil, fmt.Errorf("read filter: %d is no link type", link)
		}
		program, err := bpfprog.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("read filter of link type %d: %w", link, err)
		}
		filters[pcapng.LinkType(link)] = program
	}
	return filters, nil
}
