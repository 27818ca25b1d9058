package results

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func content(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// serve answers like the keeper's server, but closes the connection after some bytes.
func serve(w http.ResponseWriter, r *http.Request, b []byte, breakAfter int) {
	if breakAfter < 0 {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
		return
	}
	start := 0
	_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &start)
	w.Header().Set("Content-Length", fmt.Sprint(len(b)-start))
	if start > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(b)-1, len(b)))
		w.WriteHeader(http.StatusPartialContent)
	}
	_, _ = w.Write(b[start:min(len(b), start+breakAfter)])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

const tooLarge = "the results endpoint sends more than the 1048576 bytes that this file can have: ask your cluster admin what serves Service sonde-results"

func TestDownload(t *testing.T) {
	whole := content(300_000)
	other := content(200_000)
	tests := map[string]struct {
		// answer to request number n, from 1
		answer     func(n int, w http.ResponseWriter, r *http.Request)
		want       []byte
		wantRanges []string
		wantErr    string
	}{
		"at once": {
			answer:     func(_ int, w http.ResponseWriter, r *http.Request) { serve(w, r, whole, -1) },
			want:       whole,
			wantRanges: []string{""},
		},
		"empty": {
			answer:     func(_ int, w http.ResponseWriter, r *http.Request) { serve(w, r, nil, -1) },
			wantRanges: []string{""},
		},
		"goes on where it broke, more often than it may fail in a row": {
			answer: func(n int, w http.ResponseWriter, r *http.Request) {
				after := 50_000
				if n == 6 {
					after = -1
				}
				serve(w, r, whole, after)
			},
			want:       whole,
			wantRanges: []string{"", "bytes=50000-", "bytes=100000-", "bytes=150000-", "bytes=200000-", "bytes=250000-"},
		},
		"starts anew if the server ignores ranges": {
			answer: func(n int, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					serve(w, r, whole, 1000)
				}
				_, _ = w.Write(other)
			},
			want:       other,
			wantRanges: []string{"", "bytes=1000-"},
		},
		"starts anew when the file has changed": {
			answer: func(n int, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					serve(w, r, whole, 1000)
				}
				serve(w, r, other, -1)
			},
			want:       other,
			wantRanges: []string{"", "bytes=1000-", ""},
		},
		"starts anew when the file has become shorter than its downloaded part": {
			answer: func(n int, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					serve(w, r, whole, 250_000)
				}
				serve(w, r, other, -1)
			},
			want:       other,
			wantRanges: []string{"", "bytes=250000-", ""},
		},
		"survives an operator that restarts": {
			answer: func(n int, w http.ResponseWriter, r *http.Request) {
				if n < 3 {
					apiRefuse(w, 503, "no endpoints available")
					return
				}
				serve(w, r, whole, -1)
			},
			want:       whole,
			wantRanges: []string{"", "", ""},
		},
		"gives up": {
			answer:     func(_ int, w http.ResponseWriter, _ *http.Request) { refuse(w, 502, "the keeper does not answer") },
			wantRanges: []string{"", "", "", ""},
			wantErr:    "download a.pcapng: 4 attempts failed at byte 0: the keeper does not answer",
		},
		"a file as large as it can be": {
			answer:     func(_ int, w http.ResponseWriter, r *http.Request) { serve(w, r, content(1<<20), -1) },
			want:       content(1 << 20),
			wantRanges: []string{""},
		},
		"a file that is larger": {
			answer:     func(_ int, w http.ResponseWriter, r *http.Request) { serve(w, r, content(1<<20+1), -1) },
			wantRanges: []string{""},
			wantErr:    "download a.pcapng: " + tooLarge,
		},
		"a file without an end": {
			answer: func(_ int, w http.ResponseWriter, _ *http.Request) {
				for {
					if _, err := w.Write(whole); err != nil {
						return
					}
				}
			},
			wantRanges: []string{""},
			wantErr:    "download a.pcapng: " + tooLarge,
		},
		"a file that grows when its download continues": {
			answer: func(n int, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					serve(w, r, whole, 1000)
				}
				serve(w, r, content(1<<20+1), -1)
			},
			wantRanges: []string{"", "bytes=1000-", ""},
			wantErr:    "download a.pcapng: " + tooLarge,
		},
		"does not retry after a 410": {
			answer:     func(_ int, w http.ResponseWriter, _ *http.Request) { refuse(w, 410, "kept until 12:00") },
			wantRanges: []string{""},
			wantErr:    "download a.pcapng: kept until 12:00",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var ranges []string
			c := newTestClient(t, quick, &tokens{}, func(w http.ResponseWriter, r *http.Request) {
				if want := prefix + "/files/u1/a.pcapng"; r.URL.Path != want {
					t.Errorf("asked for %s, want %s", r.URL.Path, want)
				}
				ranges = append(ranges, r.Header.Get("Range"))
				tc.answer(len(ranges), w, r)
			})
			dst, err := os.Create(filepath.Join(t.TempDir(), "a"))
			if err != nil {
				t.Fatal(err)
			}
			defer dst.Close()
			n, err := c.Download(t.Context(), "u1", "a.pcapng", 1<<20, dst, nil)
			if fmt.Sprint(ranges) != fmt.Sprint(tc.wantRanges) {
				t.Errorf("ranges %q, want %q", ranges, tc.wantRanges)
			}
			if tc.wantErr != "" {
				if err == nil || err.Error() != tc.wantErr {
					t.Fatalf("error %v, want %s", err, tc.wantErr)
				}
				if info, err := dst.Stat(); err != nil || info.Size() > 1<<20 {
					t.Errorf("%d bytes on the disk (%v)", info.Size(), err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(dst.Name())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, tc.want) || n != int64(len(tc.want)) {
				t.Errorf("%d bytes in the file, %d reported, and %d are right (or others)", len(got), n, len(tc.want))
			}
		})
	}
}

func TestDownloadNoticesSilence(t *testing.T) {
	timing := quick
	timing.Idle = 20 * time.Millisecond
	whole := content(1000)
	asked := 0
	c := newTestClient(t, timing, &tokens{}, func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write(whole[:10])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		serve(w, r, whole, -1)
	})
	dst, err := os.Create(filepath.Join(t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if n, err := c.Download(t.Context(), "u1", "a.pcapng", 1<<20, dst, nil); err != nil || n != 1000 || asked != 2 {
		t.Errorf("%d bytes after %d requests: %v", n, asked, err)
	}
}

// TestABusyEndpoint: a download waits for a place as the answer asks, without counting it as a failure, and says so once.
// Without patience it ends with the answer.
func TestABusyEndpoint(t *testing.T) {
	for name, tc := range map[string]struct {
		busy      time.Duration
		wantAsked int
		wantErr   string
	}{
		"waits":    {busy: time.Minute, wantAsked: 3},
		"gives up": {busy: 0, wantAsked: 2, wantErr: "download a.pcapng: 2 attempts failed at byte 0: all 64 places are taken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, said := 0, []string(nil)
			timing := quick
			timing.Retries, timing.Busy = 1, tc.busy
			c := newTestClient(t, timing, &tokens{}, func(w http.ResponseWriter, r *http.Request) {
				if asked++; asked <= 2 {
					w.Header().Set("Retry-After", "1")
					refuse(w, 503, "all 64 places are taken")
					return
				}
				serve(w, r, content(1000), -1)
			})
			c.OnBusy = func(reason string) { said = append(said, reason) }
			dst, err := os.Create(filepath.Join(t.TempDir(), "a"))
			if err != nil {
				t.Fatal(err)
			}
			defer dst.Close()
			_, err = c.Download(t.Context(), "u1", "a.pcapng", 1<<20, dst, nil)
			if got := fmt.Sprint(err); (err == nil) != (tc.wantErr == "") || err != nil && got != tc.wantErr {
				t.Errorf("error %q, want %q", got, tc.wantErr)
			}
			if asked != tc.wantAsked || tc.busy > 0 && (len(said) != 1 || said[0] != "all 64 places are taken") {
				t.Errorf("asked %d times and said %q, want %d times", asked, said, tc.wantAsked)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "2": 2 * time.Second, "9999": maxRetryAfter, "-1": 0, "99999999999": 0, "Wed, 21 Oct 2026 07:28:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

type refusedTokens struct{ asked int }

func (r *refusedTokens) Token(context.Context) (Token, error) {
	r.asked++
	return Token{}, apierrors.NewForbidden(schema.GroupResource{Resource: "resultaccesses"}, "", nil)
}

func (*refusedTokens) Invalidate(string) {}

func TestDownloadDoesNotAskAgainForARightThatIsMissing(t *testing.T) {
	refused := &refusedTokens{}
	c := newTestClient(t, quick, refused, func(http.ResponseWriter, *http.Request) { t.Error("asked without a token") })
	if _, err := c.Download(t.Context(), "u1", "a.pcapng", 1<<20, nil, nil); !apierrors.IsForbidden(err) || refused.asked != 1 {
		t.Errorf("asked %d times: %v", refused.asked, err)
	}
}

func TestDownloadDoesNotAskAgainForAFullDisk(t *testing.T) {
	asked := 0
	c := newTestClient(t, quick, &tokens{}, func(w http.ResponseWriter, r *http.Request) {
		asked++
		serve(w, r, content(1000), -1)
	})
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if _, err := c.Download(t.Context(), "u1", "a.pcapng", 1<<20, full, nil); err == nil || asked != 1 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}

func TestContentRange(t *testing.T) {
	tests := map[string]struct {
		start, total int64
		wantErr      bool
	}{
		"bytes 5-9/10":                   {start: 5, total: 10},
		"bytes */10":                     {start: -1, total: 10},
		"":                               {wantErr: true},
		"bytes":                          {wantErr: true},
		"bytes 5-9/*":                    {wantErr: true},
		"bytes 5-8/10":                   {wantErr: true}, // does not reach the end
		"bytes 9-5/10":                   {wantErr: true},
		"bytes -5-9/10":                  {wantErr: true},
		"bytes +5-9/10":                  {wantErr: true},
		"bytes 5/10":                     {wantErr: true},
		"items 5-9/10":                   {wantErr: true},
		"bytes 5-9/99999999999999999999": {wantErr: true},
	}
	for in, tc := range tests {
		start, total, err := contentRange(in)
		if (err != nil) != tc.wantErr || (err == nil && (start != tc.start || total != tc.total)) {
			t.Errorf("contentRange(%q) = %d, %d, %v", in, start, total, err)
		}
		if err != nil && !strings.Contains(err.Error(), "Content-Range") {
			t.Errorf("contentRange(%q): %v does not name the header", in, err)
		}
	}
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 5-9/10")
	f.Add("bytes */10")
	f.Fuzz(func(t *testing.T, s string) {
		start, total, err := contentRange(s)
		if err == nil && (start < -1 || total < 0 || start > total) {
			t.Errorf("contentRange(%q) = %d, %d", s, start, total)
		}
	})
}
