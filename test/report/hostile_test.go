package report

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sonde-operator/sonde/internal/cli/htmlreport"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
	"github.com/sonde-operator/sonde/test/traffic"
)

// attacks are what an attacker could write into a name.
var attacks = []string{
	`<script>document.title='attacked'</script>`,
	`</script><script>alert(1)</script>`,
	`"><img src=http://192.0.2.1/x onerror=alert(1)>`,
	"\u202egnp.exe\u2066",
	"\x1b[2J\x00\x7f\u0085\u2028",
	`{{.}}';alert(1)//`,
	`<style>*{display:none}</style>`,
	"\xff\xfe",
}

// hostile makes names with attacks. Each has a mark, by which it is found in the page.
type hostile struct{ marks []string }

func (h *hostile) name(separators string) string {
	mark := fmt.Sprintf("mark%02d", len(h.marks))
	h.marks = append(h.marks, mark)
	attack := mark + strings.Join(attacks, "") + mark
	for _, c := range separators {
		attack = strings.ReplaceAll(attack, string(c), "")
	}
	return attack
}

// TestHostileTexts loads pages with attacks in each text that comes from packets or from traced programs.
func TestHostileTexts(t *testing.T) {
	sources := map[string]func(*hostile) []byte{"capture.pcapng": hostileCapture, "trace.ndjson": hostileTrace}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			h := &hostile{}
			path := render(t, name, source(h))
			b := open(t, path)
			if title := evaluate[string](t, b, "document.title"); strings.HasPrefix(title, "attacked") {
				t.Error("a script ran")
			}
			text := evaluate[string](t, b, "document.body.textContent")
			for i, mark := range h.marks {
				if !strings.Contains(text, mark) {
					t.Errorf("the page does not show text %d of %d", i, len(h.marks))
				}
			}
			const odd = `/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/`
			const shown = `document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT, (n) => n.parentElement.closest("script, style") ? 2 : 1)`
			if found := evaluate[[]string](t, b, `(() => { const found = [], w = `+shown+`; while (w.nextNode()) if (`+odd+`.test(w.currentNode.data)) found.push(w.currentNode.data); return found; })()`); len(found) > 0 {
				t.Errorf("characters that do not print are not escaped: %q", found)
			}
			if n := evaluate[int](t, b, "document.scripts.length"); n != 3 {
				t.Errorf("%d scripts, want the library, the page's and the data", n)
			}
			if n := evaluate[int](t, b, "document.querySelectorAll('img, iframe, object, embed, link, form, [onerror], [style*=red]').length"); n != 0 {
				t.Errorf("%d foreign elements", n)
			}
			policy := evaluate[string](t, b, `document.querySelector("meta[http-equiv=Content-Security-Policy]").content`)
			if !strings.HasPrefix(policy, "default-src 'none'; script-src 'sha256-") || strings.Contains(policy, "unsafe") {
				t.Errorf("policy %q", policy)
			}
			if n := evaluate[int](t, b, "document.querySelectorAll('.plot canvas').length"); n == 0 {
				t.Error("no charts")
			}
			b.wantQuiet(t, path)
		})
	}
}

func hostileCapture(h *hostile) []byte {
	f := traffic.New("requester: "+h.name("\n"), "capture: "+h.name("\n,"), "target: "+h.name("\n,"), "filter: "+h.name("\n"))
	named := f.Interface(h.name(""), h.name(" /")+"/"+h.name(" /")+", node "+h.name(""), 0)
	f.Interface("eth1", h.name(""), 0)
	client, server := netip.MustParseAddrPort("192.0.2.1:4000"), netip.MustParseAddrPort("192.0.2.2:80")
	c := f.Connect(named, client, server, false, 1, time.Millisecond)
	c.Open()
	const response = "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"
	c.Exchange("GET /"+h.name("\n\r? ")+" HTTP/1.1\r\nHost: "+h.name("\n\r\x00")+"\r\n\r\n", time.Second, response)
	c.Exchange(h.name("\n\r ")+" / HTTP/1.1\r\n\r\n", time.Millisecond, response)
	c.Close()
	for i, attack := range attacks {
		mark := fmt.Sprintf("dns%02d", i)
		h.marks = append(h.marks, mark)
		label := strings.ReplaceAll(attack, ".", "")
		f.Lookup(named, client, netip.MustParseAddrPort("192.0.2.3:53"), uint16(i), mark+label[:min(50, len(label))]+".", dnsmessage.RCodeNameError, time.Millisecond)
	}
	return f.Bytes()
}

func hostileTrace(h *hostile) []byte {
	at := traffic.Start
	b, err := tracefmt.AppendHeader(nil, tracefmt.Header{
		Namespace: h.name(""), Target: h.name(""), Pod: h.name(""), PodUID: "1", Node: h.name(""), Groups: []string{h.name("")}, Durations: true,
	})
	if err != nil {
		panic(err) // a header of texts
	}
	var encoder tracefmt.Encoder
	container := h.name("")
	add := func(call, path, errno string, args ...tracefmt.Arg) {
		at = at.Add(time.Second)
		b = encoder.Append(b, &tracefmt.Record{
			Time: at, Call: call, Group: "file", Container: container, PID: 1, HostPID: 7, TID: 1, HostTID: 7, Comm: []byte("<b>\u202e\x1b[2J"),
			Path: []byte(path), Took: time.Second, HasRet: true, Ret: -1, Errno: errno, Args: args,
		})
	}
	text := func(name, value string) tracefmt.Arg {
		return tracefmt.Arg{Name: name, Kind: tracefmt.Text, Text: []byte(value)}
	}
	add("exec", "/bin/sh", "", tracefmt.Arg{Name: "argv", Kind: tracefmt.List, Text: []byte("sh\x00" + h.name("\x00") + "\x00")})
	add("openat", "/"+h.name(""), "ENOENT", text("pathname", "x"))
	add("renameat2", "/a", "ENOENT", text("oldpath", "a"), text("newpath", h.name("")))
	add("connection", "", "ECONNREFUSED", text("local", "192.0.2.1:1"), text("remote", h.name("")), text("role", "client"))
	b, err = tracefmt.AppendAccount(b, tracefmt.Account{Written: 9, Lost: map[string]uint64{"ring": 3}, Reason: h.name(""), Message: "x"})
	if err != nil {
		panic(err) // an account of texts
	}
	return b
}

// TestOutcomeIsEscaped puts attacks into what the cluster says.
func TestOutcomeIsEscaped(t *testing.T) {
	var text strings.Builder
	page := &htmlreport.Page{Title: attacks[0], Verdict: htmlreport.Verdict{Text: attacks[1], Reasons: attacks}, Findings: attacks}
	if err := htmlreport.Write(&text, page); err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(text.String(), "<body>")
	for _, attack := range attacks {
		if strings.Contains(body, attack) {
			t.Errorf("%q is in the page as it is", attack)
		}
	}
}
