package packetview

import (
	"bytes"
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sonde-operator/sonde/internal/cli/conversations"
	"github.com/sonde-operator/sonde/test/traffic"
	"github.com/sonde-operator/sonde/test/wireshark"
)

func write(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.pcapng")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, b []byte) *Summary {
	t.Helper()
	s, err := Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// packet holds the fields of tshark that a packet has.
type packet map[string]string

func (p packet) has(field string) bool { return p[field] != "" }

// packets returns the fields of each packet.
func packets(t *testing.T, path string, fields ...string) []packet {
	t.Helper()
	args := []string{"-n", "-r", path, "-T", "fields"}
	for _, name := range fields {
		args = append(args, "-e", name)
	}
	var all []packet
	for line := range strings.Lines(wireshark.Run(t, "tshark", args...)) {
		p := packet{}
		for i, value := range strings.Split(strings.TrimSuffix(line, "\n"), "\t") {
			p[fields[i]] = value
		}
		all = append(all, p)
	}
	return all
}

// values returns the field of each packet that has it.
func values(all []packet, field string) []string {
	var found []string
	for _, p := range all {
		if p.has(field) {
			found = append(found, p[field])
		}
	}
	return found
}

// Fields of tshark that the figures are compared with.
var (
	segmentFields = []string{
		"tcp.stream", "tcp.analysis.retransmission", "tcp.analysis.fast_retransmission", "tcp.analysis.spurious_retransmission",
		"tcp.analysis.out_of_order", "tcp.flags.reset",
	}
	otherFields = []string{
		"ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport", "frame.len",
		"tcp.analysis.initial_rtt", "dns.time", "dns.flags.response", "dns.flags.rcode", "dns.retransmit_request", "dns.retransmit_response",
		"http.time", "http.response.code", "http.request.method", "http.host", "http.request.uri",
	}
)

// TestShopIsWhatTsharkSays compares the figures of a capture with tshark's.
func TestShopIsWhatTsharkSays(t *testing.T) {
	b := traffic.Shop()
	path, s := write(t, b), read(t, b)
	all := packets(t, path, slices.Concat(segmentFields, otherFields)...)
	t.Run("conversations", func(t *testing.T) {
		for _, protocol := range []string{"TCP", "UDP"} {
			want, got := tsharkConversations(t, path, all, protocol), ownConversations(s, protocol)
			if diff := gocmp.Diff(want, got, cmpopts.IgnoreUnexported(conversation{}), cmpopts.EquateApprox(0, 0.000101)); diff != "" {
				t.Errorf("%s (-tshark +own):\n%s", protocol, diff)
			}
		}
	})
	t.Run("segments", func(t *testing.T) { compareSegments(t, all, s) })
	t.Run("round-trip times", func(t *testing.T) {
		byStream := map[string]string{}
		for _, p := range all {
			if p.has("tcp.analysis.initial_rtt") {
				byStream[p["tcp.stream"]] = p["tcp.analysis.initial_rtt"]
			}
		}
		compareDurations(t, slices.Collect(maps.Values(byStream)), &s.RTT)
	})
	t.Run("DNS", func(t *testing.T) { compareDNS(t, all, s) })
	t.Run("HTTP", func(t *testing.T) { compareHTTP(t, all, s) })
}

func compareSegments(t *testing.T, all []packet, s *Summary) {
	t.Helper()
	streams := map[string]bool{}
	var want TCP
	count := func(n *uint64, is bool) {
		if is {
			*n++
		}
	}
	for _, p := range all {
		if p.has("tcp.stream") {
			streams[p["tcp.stream"]] = true
		}
		count(&want.Retransmissions, p.has("tcp.analysis.retransmission") || p.has("tcp.analysis.spurious_retransmission"))
		count(&want.Fast, p.has("tcp.analysis.fast_retransmission"))
		count(&want.Spurious, p.has("tcp.analysis.spurious_retransmission"))
		count(&want.OutOfOrder, p.has("tcp.analysis.out_of_order"))
		count(&want.Resets, p["tcp.flags.reset"] == "1" || p["tcp.flags.reset"] == "True")
	}
	want.Connections = uint64(len(streams))
	if diff := gocmp.Diff(want, s.TCP); diff != "" {
		t.Errorf("(-tshark +own):\n%s", diff)
	}
	if want.Retransmissions == 0 || want.Resets == 0 {
		t.Error("tshark finds none")
	}
}

func compareDNS(t *testing.T, all []packet, s *Summary) {
	t.Helper()
	var took []string
	codes, repeated := map[string]uint64{}, uint64(0)
	names := map[string]string{"0": "NOERROR", "2": "SERVFAIL", "3": "NXDOMAIN", "5": "REFUSED"}
	for _, p := range all {
		if p.has("dns.time") && !p.has("dns.retransmit_response") {
			took = append(took, p["dns.time"])
		}
		if r := p["dns.flags.response"]; r == "1" || r == "True" {
			codes[names[p["dns.flags.rcode"]]]++
		}
		if p.has("dns.retransmit_request") {
			repeated++
		}
	}
	compareDurations(t, took, &s.DNS.Took)
	if diff := gocmp.Diff(codes, s.DNS.Codes); diff != "" {
		t.Errorf("codes (-tshark +own):\n%s", diff)
	}
	if s.DNS.Repeated != repeated || repeated == 0 {
		t.Errorf("%d queries are repeated, tshark finds %d", s.DNS.Repeated, repeated)
	}
}

func compareHTTP(t *testing.T, all []packet, s *Summary) {
	t.Helper()
	compareDurations(t, values(all, "http.time"), &s.HTTP.Took)
	statuses, requests := map[int]uint64{}, map[RouteKey]uint64{}
	for _, code := range values(all, "http.response.code") {
		n, err := strconv.Atoi(code)
		if err != nil {
			t.Fatal(err)
		}
		statuses[n]++
	}
	for _, p := range all {
		if p.has("http.request.method") {
			path, _, _ := strings.Cut(p["http.request.uri"], "?")
			requests[RouteKey{p["http.request.method"], p["http.host"], path}]++
		}
	}
	own := map[RouteKey]uint64{}
	for k, r := range s.HTTP.Routes {
		own[k] = r.Requests
	}
	if diff := gocmp.Diff(statuses, s.HTTP.Statuses); diff != "" {
		t.Errorf("statuses (-tshark +own):\n%s", diff)
	}
	if diff := gocmp.Diff(requests, own); diff != "" {
		t.Errorf("requests (-tshark +own):\n%s", diff)
	}
}

// compareDurations compares each of the durations, which tshark prints in seconds with nine digits.
func compareDurations(t *testing.T, texts []string, own *Durations) {
	t.Helper()
	var want []time.Duration
	for _, text := range texts {
		d, err := time.ParseDuration(text + "s")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, d)
	}
	got := slices.Clone(own.exact)
	slices.Sort(want)
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-tshark +own):\n%s", diff)
	}
	if len(want) == 0 {
		t.Error("tshark finds none")
	}
}

// conversation is a row of tshark's table. A is the lesser of both addresses as texts.
type conversation struct {
	A, B       string
	AtoB, BtoA conversations.Count
	// Seconds that it lasted; zero for ports that were used again. tshark rounds them to four digits.
	Seconds float64

	rows int
}

var conversationLine = regexp.MustCompile(`^(\S+)\s+<->\s+(\S+)\s+(\d+)\s+([\d.]+ \w+)\s+(\d+)\s+([\d.]+ \w+)\s+\d+\s+[\d.]+ \w+\s+[\d.,]+\s+([\d.,]+)`)

// tsharkConversations returns the rows of -z conv. It adds up the bytes by packet, because the table rounds them; its rounded
// figures must agree. Rows of the same ports are one.
func tsharkConversations(t *testing.T, path string, all []packet, protocol string) []conversation {
	t.Helper()
	lower := strings.ToLower(protocol)
	exact := map[[2]string]*conversation{}
	for _, p := range all {
		if !p.has(lower + ".srcport") {
			continue
		}
		from := endpoint(p["ip.src"]+p["ipv6.src"], p[lower+".srcport"])
		to := endpoint(p["ip.dst"]+p["ipv6.dst"], p[lower+".dstport"])
		n, err := strconv.ParseInt(p["frame.len"], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		addTo(exact, from, to, conversations.Count{Packets: 1, Bytes: n})
	}
	frames := map[[2]string]*conversation{}
	for line := range strings.Lines(wireshark.Run(t, "tshark", "-n", "-r", path, "-q", "-z", "conv,"+lower)) {
		m := conversationLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		a, b := m[1], m[2]
		back, _ := strconv.ParseInt(m[3], 10, 64)
		forth, _ := strconv.ParseInt(m[5], 10, 64)
		addTo(frames, b, a, conversations.Count{Packets: back})
		c := addTo(frames, a, b, conversations.Count{Packets: forth})
		seconds, err := strconv.ParseFloat(m[7], 64)
		if err != nil {
			t.Fatal(err)
		}
		c.Seconds = seconds
		c.rows++
	}
	if len(frames) == 0 || len(frames) != len(exact) {
		t.Fatalf("tshark's table has %d pairs of %s, its packets %d", len(frames), protocol, len(exact))
	}
	var rows []conversation
	for k, c := range exact {
		if f := frames[k]; f == nil || f.AtoB.Packets != c.AtoB.Packets || f.BtoA.Packets != c.BtoA.Packets {
			t.Errorf("tshark's table has %+v, its packets %+v", f, c)
		} else if f.rows == 1 {
			c.Seconds = f.Seconds
		}
		rows = append(rows, *c)
	}
	return sorted(rows)
}

func endpoint(addr, port string) string {
	if strings.Contains(addr, ":") {
		return "[" + addr + "]:" + port
	}
	return addr + ":" + port
}

func addTo(all map[[2]string]*conversation, from, to string, n conversations.Count) *conversation {
	from, to = strings.NewReplacer("[", "", "]", "").Replace(from), strings.NewReplacer("[", "", "]", "").Replace(to)
	k := [2]string{min(from, to), max(from, to)}
	c := all[k]
	if c == nil {
		c = &conversation{A: k[0], B: k[1]}
		all[k] = c
	}
	sum := &c.AtoB
	if from != k[0] {
		sum = &c.BtoA
	}
	sum.Packets += n.Packets
	sum.Bytes += n.Bytes
	return c
}

func ownConversations(s *Summary, protocol string) []conversation {
	all := map[[2]string]*conversation{}
	for _, c := range s.Conversations {
		if c.Protocol == protocol {
			addTo(all, c.A.String(), c.B.String(), c.AtoB)
			row := addTo(all, c.B.String(), c.A.String(), c.BtoA)
			if c.TCP.Connections <= 1 {
				row.Seconds = c.Last.Sub(c.First).Seconds()
			}
		}
	}
	var list []conversation
	for _, c := range all {
		list = append(list, *c)
	}
	return sorted(list)
}

func sorted(all []conversation) []conversation {
	slices.SortFunc(all, func(x, y conversation) int {
		return cmp.Or(strings.Compare(x.A, y.A), strings.Compare(x.B, y.B))
	})
	return all
}
