package report

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browserTimeout bounds each page. The machine of the tests may be slow.
const browserTimeout = 2 * time.Minute

// browser is a tab of a headless Chromium that notes what a page must not do.
type browser struct {
	ctx context.Context //nolint:containedctx // chromedp keeps the tab in it

	mu        sync.Mutex
	incidents []string
	requests  []string
}

// open starts a browser with a profile of its own, and loads a page from a file.
func open(t *testing.T, path string, setup ...chromedp.Action[chromedp.Void]) *browser {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv("REQUIRE_PRIVILEGED") == "1" {
			t.Fatal("chromium is missing: run make deps")
		}
		t.Skip("chromium is not installed")
	}
	options := slices.Concat(chromedp.DefaultExecAllocatorOptions[:], []chromedp.ExecAllocatorOption{
		chromedp.ExecPath("chromium"), chromedp.UserDataDir(t.TempDir()), chromedp.Flag("headless", "new"),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	})
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	b := &browser{}
	b.ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(b.note))
	t.Cleanup(cancel)
	b.do(t, command(network.Enable, network.EnableParams{}))
	b.do(t, setup...)
	b.do(t, chromedp.Navigate("file://"+path), chromedp.WaitReady(chromedp.CSS("footer")))
	return b
}

// note collects dialogs, errors, messages and requests.
func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		b.incidents = append(b.incidents, "dialog: "+e.Message)
	case *runtime.EventExceptionThrown:
		b.incidents = append(b.incidents, "exception: "+e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.incidents = append(b.incidents, "console: "+string(e.Type))
	case *log.EventEntryAdded: // among them violations of the Content-Security-Policy
		b.incidents = append(b.incidents, "log: "+e.Entry.Text)
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	}
}

// command returns an action that sends a command of the protocol and drops its result.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func (b *browser) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// run returns the result of an action.
func run[T any](t *testing.T, b *browser, action chromedp.Action[T]) T {
	t.Helper()
	value, err := chromedp.Run(b.ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// evaluate returns the value of an expression in the page.
func evaluate[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	return run(t, b, chromedp.Evaluate[T](expression))
}

// wantQuiet fails if the page did more than to be shown.
func (b *browser) wantQuiet(t *testing.T, path string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, incident := range b.incidents {
		t.Error(incident)
	}
	for _, url := range b.requests {
		if url != "file://"+path && !strings.HasPrefix(url, "file://"+path+"#") {
			t.Errorf("the page requested %s", url)
		}
	}
}

func colourScheme(scheme string) chromedp.Action[chromedp.Void] {
	return command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}
