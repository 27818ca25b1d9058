package capture

import (
	"context"
	"errors"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
)

// linkRawFile is the number of raw IP in files (LINKTYPE_RAW), by which probes find their program. libpcap's compiler uses
// another number for it, the one of live interfaces on Linux.
const linkRawFile = 101

// PacketCaptures is the kind PacketCapture. It compiles filters with filters.
func PacketCaptures(filters Filters) Kind {
	return Kind{
		Capture: kind.PacketCapture, action: "Capture",
		interfaces: func(capture sondev1.Capture) bool { return len(packetSpec(capture).Interfaces) > 0 },
		details:    func(capture sondev1.Capture) []any { return []any{"filter", packetSpec(capture).Filter} },
		compile: func(ctx context.Context, capture sondev1.Capture, requester string) (compiled, error) {
			return compileFilter(ctx, filters, requester, packetSpec(capture))
		},
		configure: func(o agentjob.Options, capture sondev1.Capture, requester string, c compiled) agentjob.Marshaler {
			pc, _ := capture.(*sondev1.PacketCapture)
			return agentjob.Configuration(o, pc, pc.Status.JobID, requester, c.programs)
		},
	}
}

func packetSpec(capture sondev1.Capture) *sondev1.PacketCaptureSpec {
	spec, _ := capture.CaptureSpec().(*sondev1.PacketCaptureSpec)
	return spec
}

// compileFilter compiles the filter, if there is one, for each link type that Pods have.
func compileFilter(ctx context.Context, filters Filters, requester string, spec *sondev1.PacketCaptureSpec) (compiled, error) {
	if spec.Filter == "" {
		return compiled{}, nil
	}
	c := compiled{programs: map[int32]string{}}
	for _, link := range []struct {
		compile pcapfilter.LinkType
		file    int32
	}{{pcapfilter.LinkEthernet, int32(pcapfilter.LinkEthernet)}, {pcapfilter.LinkRaw, linkRawFile}} {
		program, err := filters.Compile(ctx, requester, spec.Filter, link.compile, int(spec.SnapLength))
		var syntax *pcapfilter.SyntaxError
		switch {
		case err == nil && len(program) > 0:
			c.programs[link.file] = program.String()
		case errors.As(err, &syntax) && link.compile == pcapfilter.LinkEthernet:
			c.unusable = remark{sondev1.ReasonFilterNotCompilable, err.Error()}
			return c, nil
		case errors.As(err, &syntax):
			// For example "vlan": the filter means nothing there, so the probes skip interfaces of that type.
		case err != nil:
			return c, err
		}
	}
	if len(c.programs) > 0 && c.programs[linkRawFile] == "" {
		c.note = remark{
			sondev1.ReasonFilterNotCompilable,
			"the filter means nothing for packets without an Ethernet header: interfaces of that type (tun, ipip) are not captured",
		}
	}
	return c, nil
}
