// Package report opens the pages of kubectl sonde report in a browser.
package report

import (
	"bufio"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/sonde-operator/sonde/internal/cli/htmlreport"
	"github.com/sonde-operator/sonde/test/traffic"
)

var update = flag.Bool("update", false, "write the screenshots of docs/images")

// maxImage is the largest size of a screenshot in the documentation, in bytes.
const maxImage = 150 << 10

// render writes the page of a capture or trace and returns its path.
func render(t *testing.T, name string, content []byte) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, name)
	if err := os.WriteFile(source, content, 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := htmlreport.Read(t.Context(), source, name, htmlreport.Outcome{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "report.html")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := bufio.NewWriter(f)
	if err := htmlreport.Write(out, report); err != nil {
		t.Fatal(err)
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestScreens loads a capture and a trace on a laptop and on a phone, in light and dark.
func TestScreens(t *testing.T) {
	capture, trace := render(t, "web.pcapng", traffic.Shop()), render(t, "prices.ndjson", traffic.Prices())
	tests := map[string]struct {
		path          string
		width, height int64
		scheme        string
		charts        int
	}{
		"report":       {capture, 1200, 860, "light", 6},
		"report-dark":  {capture, 1200, 860, "dark", 6},
		"report-phone": {capture, 390, 844, "light", 6},
		"report-trace": {trace, 1200, 860, "light", 3},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := open(t, tc.path, chromedp.EmulateViewport(tc.width, tc.height), colourScheme(tc.scheme))
			if n := evaluate[int](t, b, "document.querySelectorAll('.plot canvas').length"); n != tc.charts {
				t.Errorf("%d charts, want %d", n, tc.charts)
			}
			if width := evaluate[int64](t, b, "document.documentElement.scrollWidth"); width > tc.width {
				t.Errorf("the page is %d pixels wide, the window %d", width, tc.width)
			}
			image := run(t, b, chromedp.CaptureScreenshot())
			if len(image) > maxImage {
				t.Errorf("the screenshot has %d bytes", len(image))
			}
			if *update {
				if err := os.WriteFile("../../docs/images/"+name+".png", image, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			b.wantQuiet(t, tc.path)
		})
	}
}

// TestTables sorts a table with the keyboard, and shows the rows that were hidden.
func TestTables(t *testing.T) {
	path := render(t, "web.pcapng", traffic.Shop())
	b := open(t, path, chromedp.EmulateViewport(1200, 860))
	const table = "[...document.querySelectorAll('.scroll table')].find((t) => t.caption.textContent.startsWith('Conversations'))"
	if n := evaluate[int](t, b, table+".querySelectorAll('tbody tr:not([hidden])').length"); n != 12 {
		t.Errorf("%d rows are shown at first", n)
	}
	evaluate[bool](t, b, table+".parentElement.nextElementSibling.click() || true")
	if n := evaluate[int](t, b, table+".querySelectorAll('tbody tr:not([hidden])').length"); n < 100 {
		t.Errorf("%d rows are shown of all", n)
	}
	evaluate[bool](t, b, table+".tHead.rows[0].cells[10].firstChild.focus() || true")
	b.do(t, chromedp.KeyEvent("\r"))
	if sort := evaluate[string](t, b, table+".tHead.rows[0].cells[10].getAttribute('aria-sort')"); sort != "descending" {
		t.Errorf("aria-sort is %q", sort)
	}
	values := evaluate[[]float64](t, b, "[..."+table+".tBodies[0].rows].map((r) => Number(r.cells[10].dataset.sort))")
	for i := 1; i < len(values); i++ {
		if values[i] > values[i-1] {
			t.Fatalf("rows are not sorted: %v", values)
		}
	}
	printed := run(t, b, func(ctx context.Context, tab *chromedp.Target) (page.PrintToPDFResult, error) {
		return cdp.Call(ctx, tab, page.PrintToPDF, page.PrintToPDFParams{})
	})
	if len(printed.Data) < 10_000 {
		t.Errorf("the printed page has only %d bytes", len(printed.Data))
	}
	b.wantQuiet(t, path)
}

// TestPolicy shows that the page's policy works: what an attacker would have to add does not run.
func TestPolicy(t *testing.T) {
	path := render(t, "web.pcapng", traffic.Shop())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	attack := `<script>document.title = "attacked"</script><img src="http://192.0.2.1/x.png" onerror="document.title='attacked'"><p style="color:red">`
	broken := strings.Replace(string(b), "<footer>", attack+"<footer>", 1)
	if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	tab := open(t, path)
	if title := evaluate[string](t, tab, "document.title"); strings.Contains(title, "attacked") {
		t.Error("a foreign script ran")
	}
	tab.mu.Lock()
	defer tab.mu.Unlock()
	if len(tab.incidents) < 3 {
		t.Errorf("the browser refused only %q", tab.incidents)
	}
}
