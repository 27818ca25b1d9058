// Package intercept measures the data path of an InterceptRequest: a stream through carrier, Stowaway and client, a
// request that the carrier only forwards, and Stowaway's memory. Each of them is a process of its own that runs the
// product's packages.
package intercept

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// Sizes of a round. The bytes of a stream are the Env's.
type Sizes struct {
	WireGuard string // path of the binary of test/bench/wireguard
	Requests  int    // sent by each way
	Clients   int    // of Stowaway
	// Still is how long Stowaway's memory must have grown by less than growth. It ends streams that are not read when memory is short.
	Still time.Duration
}

// WireGuardVersion returns the version of WireGuard in the binary of test/bench/wireguard.
func WireGuardVersion(path string) (string, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the version of WireGuard (make bench builds it): %w", err)
	}
	for _, m := range info.Deps {
		if m.Path == "golang.zx2c4.com/wireguard" {
			return m.Version, nil
		}
	}
	return "", fmt.Errorf("%s has no WireGuard", path)
}

// Round measures each way, the forwarding of requests and the memory once, and adds the samples to a result. Odd rounds
// take the ways backwards, so that none profits if the machine becomes slower or faster.
func Round(ctx context.Context, b *host.Env, round int, o *Sizes, to *figures.Intercept) error {
	ways := slices.Clone(figures.Ways)
	if round%2 == 1 {
		slices.Reverse(ways)
	}
	for i := range ways {
		s, err := stream(ctx, b, &ways[i], o)
		if err != nil {
			return fmt.Errorf("stream, %s: %w", ways[i].Name, err)
		}
		s.Round = round
		to.Streams = append(to.Streams, s)
	}
	f, err := forward(ctx, b, o.Requests)
	if err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	h, err := hold(ctx, b, o)
	if err != nil {
		return fmt.Errorf("memory of Stowaway: %w", err)
	}
	f.Round, h.Round = round, round
	to.Forwarded, to.Held = append(to.Forwarded, f), append(to.Held, h)
	return nil
}

// stream sends one stream from the developer's machine to the Pod's caller.
func stream(ctx context.Context, b *host.Env, way *figures.Way, o *Sizes) (figures.Streamed, error) {
	w := &world{b: b}
	defer w.close()
	out := figures.Streamed{Way: way.Name, Bytes: b.Stream / way.Slow}
	if way.Name == figures.WayWireGuard {
		source := host.InsideCommand(ctx, b.Net.Sender, o.WireGuard, "-peer", host.TargetIP, "-bytes", fmt.Sprint(out.Bytes), "source")
		if _, err := w.start(ctx, figures.ProcessSource, source); err != nil {
			return out, err
		}
		sink := host.InsideCommand(ctx, b.Net.Target, o.WireGuard, "-peer", host.SenderIP, "sink")
		err := w.drain(ctx, sink, &out)
		if err == nil {
			out.CPU[figures.ProcessSink] = host.Used(sink)
		}
		return out, err
	}
	if _, err := w.run(ctx, "", b.Net.Sender, "source", &settings{Bytes: out.Bytes}); err != nil {
		return out, err
	}
	to, check := net.JoinHostPort(host.SenderIP, sourcePort), func() error { return nil }
	if way.Name != figures.WayDirect {
		m, err := w.intercept(ctx, nil, way.Name == figures.WayAPIServer)
		if err != nil {
			return out, err
		}
		defer m.close()
		to, check = podAddress, func() error {
			return m.awaitCounters(ctx, func(c tunnel.Counters) bool { return c.Matched == 1 && c.BytesFromClient >= uint64(out.Bytes) })
		}
	}
	sink, err := command(ctx, b.Net.Target, "sink", &settings{Address: to})
	if err != nil {
		return out, err
	}
	if err := w.drain(ctx, sink, &out); err != nil {
		return out, err
	}
	return out, check()
}

// drain runs the sink, and measures it and the processes before it.
func (w *world) drain(ctx context.Context, sink *exec.Cmd, out *figures.Streamed) error {
	before := w.times()
	var said received
	if err := host.Talk(ctx, sink, &said); err != nil {
		return err
	}
	out.Wall, out.CPU = said.Wall, w.times()
	for name := range out.CPU {
		out.CPU[name] -= before[name]
	}
	if said.Bytes != out.Bytes {
		return fmt.Errorf("%d bytes arrived, of %d", said.Bytes, out.Bytes)
	}
	return nil
}

// forward sends requests that do not match to the app, directly, through a plain proxy and through the carrier.
func forward(ctx context.Context, b *host.Env, requests int) (out figures.Forwarded, err error) {
	w := &world{b: b}
	defer w.close()
	for _, role := range []string{"app", "splicer"} {
		if _, err := w.run(ctx, "", b.Net.Target, role, &settings{}); err != nil {
			return out, err
		}
	}
	user := "alice"
	m, err := w.intercept(ctx, &httpmatch.Match{Headers: []httpmatch.Header{{Name: "X-User", Text: httpmatch.Text{Exact: &user}}}}, false)
	if err != nil {
		return out, err
	}
	defer m.close()
	caller, err := command(ctx, b.Net.Target, "caller", &settings{Requests: requests})
	if err != nil {
		return out, err
	}
	if err := host.Talk(ctx, caller, &out); err != nil {
		return out, err
	}
	return out, m.awaitCounters(ctx, func(c tunnel.Counters) bool { return c.Passed == uint64(requests) })
}
