package keeper

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// running is a keeper that serves on loopback.
type running struct {
	addr             string
	results, control string
	pairs            map[string][]byte
	client           *keeperapi.Client
	end              context.CancelFunc
	ended            chan error
}

// run starts a keeper whose probe has written the account capturing and a file of ten bytes.
func run(t *testing.T, c clock.WithTicker) *running {
	t.Helper()
	k := &running{results: t.TempDir(), control: t.TempDir(), ended: make(chan error, 1)}
	pairs, err := keeperapi.GeneratePairs(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	k.pairs = pairs
	dir := t.TempDir()
	for name, b := range pairs {
		if name != captureconfig.SecretClientKey {
			write(t, filepath.Join(dir, name), string(b))
		}
	}
	write(t, filepath.Join(k.results, captureconfig.ProgressFile), capturing)
	write(t, filepath.Join(k.results, "web.pcapng"), "0123456789")

	ctx, cancel := context.WithCancel(t.Context())
	k.end = cancel
	addr := make(chan net.Addr, 1)
	listen := func(ctx context.Context) (net.Listener, error) {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err == nil {
			addr <- l.Addr()
		}
		return l, err
	}
	go func() {
		k.ended <- Run(ctx, &Config{
			Listen: listen, TLSDir: dir, ResultsDir: k.results, ControlDir: k.control, Retain: time.Hour, Clock: c,
			Confined: func() error { return nil }, Restrict: unrestricted, Log: slog.New(slog.DiscardHandler),
		})
	}()
	select {
	case a := <-addr:
		k.addr = a.String()
	case err := <-k.ended:
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel() })
	if k.client, err = keeperapi.NewClient(pairs[captureconfig.SecretServerCert], pairs[captureconfig.SecretClientCert], pairs[captureconfig.SecretClientKey]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.client.Close)
	return k
}

// unrestricted leaves the test's process as it is.
func unrestricted(string, string) (restriction.InForce, error) { return restriction.InForce{}, nil }

// awaitEnd fails unless the keeper ends by itself, without an error, within d.
func (k *running) awaitEnd(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case err := <-k.ended:
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
	case <-time.After(d):
		t.Fatalf("the keeper still runs after %v", d)
	}
}

func (k *running) put(t *testing.T, text string) {
	t.Helper()
	write(t, filepath.Join(k.results, ".new"), text)
	if err := os.Rename(filepath.Join(k.results, ".new"), filepath.Join(k.results, captureconfig.ProgressFile)); err != nil {
		t.Fatal(err)
	}
}

func TestWatchEndsWithTheCapture(t *testing.T) {
	k := run(t, clock.RealClock{})
	var seen []int64
	err := k.client.Watch(t.Context(), k.addr, func(a account.Account) error {
		seen = append(seen, a.Seen)
		if a.State == account.StateCapturing {
			k.put(t, done)
		}
		return nil
	})
	// The keeper may not have read the progress file when the watch begins.
	if len(seen) > 0 && seen[0] == 0 {
		seen = seen[1:]
	}
	if diff := cmp.Diff([]int64{3, 4}, seen); diff != "" || err != nil {
		t.Errorf("Watch: %v (-want +got):\n%s", err, diff)
	}
}

func TestFiles(t *testing.T) {
	k := run(t, clock.RealClock{})
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "secret")
	if err := os.Symlink(secret, filepath.Join(k.results, "link.pcapng")); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		name, byteRange string
		wantStatus      int
		want            string
	}{
		"whole":         {name: "web.pcapng", wantStatus: 200, want: "0123456789"},
		"middle":        {name: "web.pcapng", byteRange: "bytes=3-5", wantStatus: 206, want: "345"},
		"end":           {name: "web.pcapng", byteRange: "bytes=-2", wantStatus: 206, want: "89"},
		"resumed":       {name: "web.pcapng", byteRange: "bytes=8-", wantStatus: 206, want: "89"},
		"beyond":        {name: "web.pcapng", byteRange: "bytes=10-", wantStatus: 416},
		"link":          {name: "link.pcapng", wantStatus: 404},
		"progress file": {name: captureconfig.ProgressFile, wantStatus: 404},
		"path":          {name: "../" + filepath.Base(filepath.Dir(secret)) + "/secret", wantStatus: 404},
		"other volume":  {name: filepath.Join(k.control, "x.pcapng"), wantStatus: 404},
		"missing":       {name: "missing.pcapng", wantStatus: 404},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			resp, err := k.client.File(t.Context(), k.addr, tc.name, tc.byteRange)
			if tc.want == "" {
				var status *keeperapi.StatusError
				if !errors.As(err, &status) || status.Code != tc.wantStatus {
					t.Fatalf("File: %v, want status %d", err, tc.wantStatus)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tc.wantStatus || string(b) != tc.want || resp.ContentLength != int64(len(tc.want)) {
				t.Errorf("status %d, %q of %d bytes, %v; want %d, %q", resp.StatusCode, b, resp.ContentLength, err, tc.wantStatus, tc.want)
			}
		})
	}
}

// The answer has the file's length at the time of the request, even if the capture adds more while it is sent.
func TestFileThatGrows(t *testing.T) {
	k := run(t, clock.RealClock{})
	const size = 16 << 20 // more than sockets hold
	path := filepath.Join(k.results, "large.pcapng")
	write(t, path, strings.Repeat("a", size))
	resp, err := k.client.File(t.Context(), k.addr, "large.pcapng", "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("later"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || n != size || resp.ContentLength != size {
		t.Errorf("%d bytes of %d announced, %v; want %d", n, resp.ContentLength, err, size)
	}
}

// blocks returns a capture file, and where its first two blocks end.
func blocks() (b []byte, ends [2]int) {
	b = pcapng.AppendSection(nil, &pcapng.Section{Application: "sonde"})
	b = pcapng.AppendInterface(b, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	for i := range ends {
		b = pcapng.AppendPacket(b, &pcapng.Packet{Data: make([]byte, 1000), Length: 1000})
		ends[i] = len(b)
	}
	return b, ends
}

// A part of a block, which a running or killed probe has written, is not served.
func TestTornBlockIsCut(t *testing.T) {
	b, ends := blocks()
	tests := map[string]struct {
		size  int
		known int // the size in the account
		want  int
	}{
		"whole":               {size: ends[1], known: ends[1], want: ends[1]},
		"whole, not known":    {size: ends[1], want: ends[1]},
		"torn":                {size: ends[1] - 1, known: ends[0], want: ends[0]},
		"torn, not known":     {size: ends[0] + 5, want: ends[0]},
		"shorter than known":  {size: ends[1] - 1, known: ends[1], want: ends[0]},
		"one more than known": {size: ends[1], known: ends[0], want: ends[1]},
		"torn after known":    {size: ends[0] + 4, known: ends[0], want: ends[0]},
	}
	k := run(t, clock.RealClock{})
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k.put(t, fmt.Sprintf(`{"v":1,"state":"capturing","files":[{"name":"torn.pcapng","bytes":%d}]}`, tc.known))
			k.awaitKnown(t, int64(tc.known))
			write(t, filepath.Join(k.results, "torn.pcapng"), string(b[:tc.size]))
			resp, err := k.client.File(t.Context(), k.addr, "torn.pcapng", "")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || len(got) != tc.want || resp.ContentLength != int64(tc.want) {
				t.Errorf("%d bytes of %d announced (%v), want %d", len(got), resp.ContentLength, err, tc.want)
			}
		})
	}
}

// awaitKnown waits until the keeper has read an account whose one file has so many bytes.
func (k *running) awaitKnown(t *testing.T, bytes int64) {
	t.Helper()
	known := errors.New("known")
	err := k.client.Watch(t.Context(), k.addr, func(a account.Account) error {
		if len(a.Files) == 1 && a.Files[0].Bytes == bytes {
			return known
		}
		return nil
	})
	if !errors.Is(err, known) {
		t.Fatal(err)
	}
}

// A removed file of a ring takes no more space, even during a download, which is aborted.
func TestDownloadOfARemovedFileBreaksOff(t *testing.T) {
	k := run(t, clock.RealClock{})
	const size = 16 << 20 // more than sockets hold
	path := filepath.Join(k.results, "old.pcapng")
	write(t, path, strings.Repeat("a", size))
	for _, emptied := range []bool{false, true} {
		write(t, path, strings.Repeat("a", size))
		resp, err := k.client.File(t.Context(), k.addr, "old.pcapng", "")
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if emptied { // as the probe does
			if err := f.Truncate(0); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err == nil || n == size {
			t.Errorf("emptied %t: %d bytes of a removed file, %v", emptied, n, err)
		}
		var status *keeperapi.StatusError
		again, err := k.client.File(t.Context(), k.addr, "old.pcapng", "")
		if err == nil {
			again.Body.Close()
		}
		if !errors.As(err, &status) || status.Code != http.StatusNotFound {
			t.Errorf("asked again: %v", err)
		}
	}
}

func TestStop(t *testing.T) {
	k := run(t, clock.RealClock{})
	for _, reason := range []string{"Duration", "", "Stopped\n", strings.Repeat("x", 2*keeperapi.MaxStopBytes)} {
		if err := k.client.Stop(t.Context(), k.addr, reason); err == nil {
			t.Errorf("reason %.20q was accepted", reason)
		}
	}
	if _, err := os.Lstat(filepath.Join(k.control, captureconfig.StopFile)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a refused request left a stop file: %v", err)
	}
	for _, reason := range []string{account.ReasonAccessRevoked, account.ReasonStopped} {
		if err := k.client.Stop(t.Context(), k.addr, reason); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
	b, err := os.ReadFile(filepath.Join(k.control, captureconfig.StopFile))
	if err != nil || strings.TrimSpace(string(b)) != account.ReasonAccessRevoked {
		t.Errorf("the stop file says %q, %v; want the first reason", b, err)
	}
	if entries, err := os.ReadDir(k.control); err != nil || len(entries) != 2 {
		t.Errorf("the control volume holds %v, %v; want the stop file and the spare file", entries, err)
	}
}

func TestRefusals(t *testing.T) {
	k := run(t, clock.RealClock{})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: k.tls(t, k.pairs)}}
	defer client.CloseIdleConnections()
	tests := map[string]struct {
		method, path, version, body string
		want                        int
	}{
		"no version":           {method: "GET", path: "/v1/progress", want: 400},
		"newer manager":        {method: "GET", path: "/v1/progress", version: "2", want: 400},
		"no such path":         {method: "GET", path: "/v2/progress", version: "1", want: 404},
		"a directory":          {method: "GET", path: "/v1/files/", version: "1", want: 404},
		"a path below":         {method: "GET", path: "/v1/files/a/b.pcapng", version: "1", want: 404},
		"progress by POST":     {method: "POST", path: "/v1/progress", version: "1", want: 405},
		"file by PUT":          {method: "PUT", path: "/v1/files/web.pcapng", version: "1", want: 405},
		"release by GET":       {method: "GET", path: "/v1/release", version: "1", want: 405},
		"stop by GET":          {method: "GET", path: "/v1/stop", version: "1", want: 405},
		"stop without body":    {method: "POST", path: "/v1/stop", version: "1", want: 400},
		"stop with more":       {method: "POST", path: "/v1/stop", version: "1", body: `{"reason":"Stopped"}{}`, want: 400},
		"stop, unknown field":  {method: "POST", path: "/v1/stop", version: "1", body: `{"reason":"Stopped","now":true}`, want: 400},
		"stop, endless body":   {method: "POST", path: "/v1/stop", version: "1", body: strings.Repeat(" ", 8192), want: 413},
		"stop, another reason": {method: "POST", path: "/v1/stop", version: "1", body: `{"reason":"Boredom"}`, want: 400},
		"endless header":       {method: "GET", path: "/v1/progress", version: strings.Repeat("1", 64<<10), want: 431},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, "https://"+k.addr+tc.path, strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if tc.version != "" {
				req.Header.Set(keeperapi.Header, tc.version)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var body keeperapi.ErrorBody
			if err := json.NewDecoder(resp.Body).Decode(&body); tc.want != 431 && (err != nil || body.Error == "") {
				t.Errorf("body %+v, %v", body, err)
			}
			if resp.StatusCode != tc.want {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, tc.want, body.Error)
			}
		})
	}
}

// tls is the configuration of a client with the pairs p, which does not pin the server.
func (k *running) tls(t *testing.T, p map[string][]byte) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(k.pairs[captureconfig.SecretServerCert])
	config := &tls.Config{RootCAs: pool, ServerName: keeperapi.ServerName}
	if p != nil {
		pair, err := tls.X509KeyPair(p[captureconfig.SecretClientCert], p[captureconfig.SecretClientKey])
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func TestOnlyThePinnedClient(t *testing.T) {
	k := run(t, clock.RealClock{})
	other, err := keeperapi.GeneratePairs(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	old := k.tls(t, k.pairs)
	old.MaxVersion = tls.VersionTLS12
	server := k.tls(t, map[string][]byte{ // the keeper's own certificate is not a client's
		captureconfig.SecretClientCert: k.pairs[captureconfig.SecretServerCert], captureconfig.SecretClientKey: k.pairs[captureconfig.SecretServerKey],
	})
	for name, config := range map[string]*tls.Config{
		"no certificate": k.tls(t, nil), "another's certificate": k.tls(t, other), "the keeper's certificate": server, "TLS 1.2": old,
	} {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
			defer client.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+k.addr+keeperapi.PathProgress, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			keeperapi.SetVersion(req.Header)
			resp, err := client.Do(req)
			if err == nil {
				resp.Body.Close()
				t.Fatalf("status %d", resp.StatusCode)
			}
			if !strings.Contains(err.Error(), "tls: ") {
				t.Errorf("refused, but not by TLS: %v", err)
			}
		})
	}
	if _, err := k.client.Progress(t.Context(), k.addr); err != nil {
		t.Errorf("the pinned client: %v", err)
	}
}

func TestReleaseEnds(t *testing.T) {
	k := run(t, clock.RealClock{})
	if err := k.client.Release(t.Context(), k.addr); err != nil {
		t.Fatal(err)
	}
	k.awaitEnd(t, 5*time.Second)
}

// A deleted Pod must not wait for clients that watch or download.
func TestTerminationDoesNotWaitForClients(t *testing.T) {
	k := run(t, clock.RealClock{})
	write(t, filepath.Join(k.results, "large.pcapng"), strings.Repeat("a", 64<<20))
	resp, err := k.client.File(t.Context(), k.addr, "large.pcapng", "") // and never reads it
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	watching, watched := make(chan struct{}), make(chan error, 1)
	go func() {
		first := true
		watched <- k.client.Watch(t.Context(), k.addr, func(account.Account) error {
			if first {
				close(watching)
			}
			first = false
			return nil
		})
	}()
	<-watching
	k.end()
	k.awaitEnd(t, 2*time.Second)
	if err := <-watched; !errors.Is(err, keeperapi.ErrStreamCut) {
		t.Errorf("Watch: %v", err)
	}
}

func TestRetentionEndsTheKeeper(t *testing.T) {
	c := clocktesting.NewFakeClock(noon)
	k := run(t, c)
	k.put(t, done)
	k.step(t, c, pollInterval, func(a account.Account) bool { return a.State == account.StateDone })
	c.Step(time.Hour - time.Second)
	k.step(t, c, 0, func(account.Account) bool { return true }) // it still answers
	select {
	case err := <-k.ended:
		t.Fatalf("ended a second early: %v", err)
	default:
	}
	c.Step(time.Second)
	k.awaitEnd(t, 5*time.Second)
}

// step moves the clock until the keeper's account is as expected.
func (k *running) step(t *testing.T, c *clocktesting.FakeClock, d time.Duration, want func(account.Account) bool) {
	t.Helper()
	for range 1000 {
		c.Step(d)
		a, err := k.client.Progress(t.Context(), k.addr)
		if err != nil {
			t.Fatal(err)
		}
		if want(a) {
			return
		}
	}
	t.Fatal("the account is not as expected")
}

func TestRunRefuses(t *testing.T) {
	unconfined := errors.New("unconfined")
	dir := t.TempDir()
	fine := Config{
		TLSDir: dir, ResultsDir: dir, ControlDir: dir, Clock: clock.RealClock{},
		Confined: func() error { return nil }, Log: slog.New(slog.DiscardHandler),
	}
	tests := map[string]struct {
		change  func(*Config)
		wantErr string
	}{
		"unconfined":      {change: func(c *Config) { c.Confined = func() error { return unconfined } }, wantErr: "unconfined"},
		"no results":      {change: func(c *Config) { c.ResultsDir += "/missing" }, wantErr: "open results volume"},
		"no control":      {change: func(c *Config) { c.ControlDir += "/missing" }, wantErr: "open control volume"},
		"no key material": {change: func(*Config) {}, wantErr: "read key material"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := fine
			tc.change(&cfg)
			if err := Run(t.Context(), &cfg); err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("Run: %v, want an error with %q", err, tc.wantErr)
			}
		})
	}
}

func FuzzParseStop(f *testing.F) {
	for _, seed := range []string{`{"reason":"Stopped"}`, `{"reason":"AccessRevoked"} `, `{"reason":1}`, `{}`, `null`, `{"reason":"Stopped"}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if reason, err := parseStop(b); err == nil && !slices.Contains(stopReasons, reason) {
			t.Errorf("reason %q", reason)
		} else if err != nil && len(err.Error()) > 512 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}

// TestFloodOfConnections: a Pod that opens connections without a certificate keeps out no other client.
func TestFloodOfConnections(t *testing.T) {
	k := run(t, clock.RealClock{})
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	var opened atomic.Int32
	for range 2 * maxConnections {
		flood.Go(func() {
			from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
			for ctx.Err() == nil {
				c, err := from.DialContext(ctx, "tcp", k.addr)
				if err != nil {
					continue
				}
				opened.Add(1)
				end := context.AfterFunc(ctx, func() { _ = c.Close() })
				_, _ = c.Read(make([]byte, 1)) // until the keeper closes it
				end()
				_ = c.Close()
			}
		})
	}
	for opened.Load() < 2*maxConnections {
		runtime.Gosched()
	}
	for range 5 {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := k.client.Stop(try, k.addr, account.ReasonStopped)
		cancel()
		if err != nil {
			t.Error(err)
		}
	}
}
