package results

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

func TestDownload(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		byteRange string
		code      int
		want      string
		header    string // Content-Range
		note      string
	}{
		"whole":        {"", http.StatusOK, string(w.keeper.content), "", "alice read 1000000 bytes of web-1-qwer.pcapng of Pod web-1 (whole)"},
		"the rest":     {"bytes=999990-", http.StatusPartialContent, "0123456789", "bytes 999990-999999/1000000", "alice read 10 bytes from byte 999990 on of web-1-qwer.pcapng of Pod web-1 (rest)"},
		"some of it":   {"bytes=3-5", http.StatusPartialContent, "345", "bytes 3-5/1000000", "alice read 3 bytes from byte 3 on of web-1-qwer.pcapng of Pod web-1 (part)"},
		"no range":     {"lines=3-5", http.StatusRequestedRangeNotSatisfiable, "", "", ""},
		"past the end": {"bytes=1000000-", http.StatusRequestedRangeNotSatisfiable, "", "bytes */1000000", ""},
		"many ranges":  {"bytes=1-2,4-5", http.StatusRequestedRangeNotSatisfiable, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			resp := w.get(webFile, map[string]string{"Range": tc.byteRange})
			body, err := io.ReadAll(resp.body)
			if err != nil || resp.code != tc.code {
				t.Fatalf("got %d, %v; want %d", resp.code, err, tc.code)
			}
			if tc.header != "" && resp.header.Get("Content-Range") != tc.header {
				t.Errorf("Content-Range %q, want %q", resp.header.Get("Content-Range"), tc.header)
			}
			if tc.code >= 400 {
				return
			}
			if string(body) != tc.want || resp.length != int64(len(tc.want)) {
				t.Errorf("%d bytes of %d, want %d", len(body), resp.length, len(tc.want))
			}
			if note := <-w.events.Events; !strings.Contains(note, tc.note) {
				t.Errorf("event %q, want %q", note, tc.note)
			}
		})
	}
}

func TestHeadTellsTheSize(t *testing.T) {
	w := newWorld(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, w.server.URL+webFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(TokenHeader, token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ContentLength != 1_000_000 || len(w.events.Events) != 0 {
		t.Errorf("got %d, %d bytes, %d events", resp.StatusCode, resp.ContentLength, len(w.events.Events))
	}
}

func TestABrokenDownloadDoesNotLookWhole(t *testing.T) {
	w := newWorld(t)
	w.keeper.breakAt = 600_000
	resp := w.get(webFile, nil)
	body, err := io.ReadAll(resp.body)
	if err == nil || len(body) >= len(w.keeper.content) {
		t.Errorf("%d bytes and no error", len(body))
	}
	if note := <-w.events.Events; !strings.Contains(note, "broken off") {
		t.Errorf("event %q", note)
	}
}

func TestDownloadRefusals(t *testing.T) {
	const base = "/v1/namespaces/shop/packetcaptures/web/"
	for name, tc := range map[string]struct {
		path    string // webFile if empty
		headers map[string]string
		change  func(*world)
		code    int
		want    string
	}{
		"no token":         {headers: map[string]string{TokenHeader: ""}, code: 401, want: "create a ResultAccess"},
		"short token":      {headers: map[string]string{TokenHeader: "abc"}, code: 401, want: "no token"},
		"endless token":    {headers: map[string]string{TokenHeader: strings.Repeat("a", 5000)}, code: 401, want: "no token"},
		"wrong token":      {headers: map[string]string{TokenHeader: strings.Repeat("a", 32)}, code: 401, want: "create a new ResultAccess"},
		"the hash":         {headers: map[string]string{TokenHeader: tokenHash()}, code: 401, want: "gives no access to"},
		"another capture":  {path: "/v1/namespaces/shop/packetcaptures/api/progress", code: 401, want: "gives no access to"},
		"another's":        {path: "/v1/namespaces/bank/packetcaptures/web/progress", code: 401, want: "gives no access to"},
		"a strange path":   {path: "/v1/namespaces/..%2f/packetcaptures/web/progress", code: 404, want: "no such capture"},
		"another path":     {path: "/v1/pods", code: 404, want: "no such path"},
		"a file's path":    {path: base + "files/pod-1/..%2Fprogress.json", code: 404, want: "no such file"},
		"a hidden file":    {path: base + "files/pod-1/.hidden", code: 404, want: "no such file"},
		"an unknown file":  {path: base + "files/pod-1/other.pcapng", code: 404, want: "no file other.pcapng"},
		"an unknown Pod":   {path: base + "files/pod-9/a.pcapng", code: 404, want: "no Pod with this UID"},
		"a Pod's bad UID":  {path: base + "files/pod_1/a.pcapng", code: 404, want: "/files/UID/FILE"},
		"keeper refuses":   {path: base + "files/pod-1/locked.pcapng", code: 502, want: "refuses"},
		"right taken away": {change: func(w *world) { w.rights.set(false, false) }, code: 403, want: "lacks capture on pods"},
		"expired": {change: func(w *world) {
			change(w, w.access("mine", nil), func(ra *sondev1.ResultAccess) {
				ra.CreationTimestamp = metav1.NewTime(time.Now().Add(-901 * time.Second))
			})
		}, code: 401, want: "has expired"},
		"access never admitted": {change: func(w *world) {
			change(w, w.access("mine", nil), func(ra *sondev1.ResultAccess) { ra.Annotations = nil })
		}, code: 403, want: "not stamped"},
		"access with another's hash": {change: func(w *world) {
			change(w, w.access("mine", nil), func(ra *sondev1.ResultAccess) { ra.Spec.ExpirationSeconds = 3600 })
		}, code: 403, want: "stamp is not valid"},
		"access to a capture's stamp": {change: func(w *world) {
			change(w, w.access("mine", nil), func(ra *sondev1.ResultAccess) {
				ra.Annotations = w.stamped(stamp.KindPacketCapture, ra.Spec, "uid-shop")
			})
		}, code: 403, want: "stamp is not valid"},
		"access for an earlier namespace": {change: func(w *world) {
			change(w, w.access("mine", nil), func(ra *sondev1.ResultAccess) {
				ra.Annotations = w.stamped(stamp.KindResultAccess, ra.Spec, "uid-of-before")
			})
		}, code: 410, want: "has been deleted"},
		"namespace made anew": {change: func(w *world) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			w.remove(ns)
			w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "uid-shop-2"}})
		}, code: 410, want: "has been deleted"},
		"namespace gone": {change: func(w *world) {
			w.remove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
		}, code: 410, want: "has been deleted"},
		"capture gone":    {change: func(w *world) { w.remove(w.capture()) }, code: 404, want: "it was deleted"},
		"capture leaving": {change: leave, code: 410, want: "is being deleted"},
		"capture made anew": {change: func(w *world) {
			w.remove(w.capture())
			pc := w.capture()
			pc.CreationTimestamp = metav1.NewTime(time.Now().Add(10 * time.Second))
			w.create(pc)
		}, code: 401, want: "older than PacketCapture"},
		"capture forged": {change: func(w *world) {
			change(w, w.capture(), func(pc *sondev1.PacketCapture) { pc.Spec.Filter = "udp" })
		}, code: 403, want: "stamp is not valid"},
		"agent gone": {change: func(w *world) { w.remove(agent(w.owned("web-1-qwer-x", ""))) }, code: 404, want: "has not begun"},
		"agent gone after the capture": {change: func(w *world) {
			w.remove(agent(w.owned("web-1-qwer-x", "")))
			change(w, w.capture(), func(pc *sondev1.PacketCapture) { pc.Status.Pods[0].Phase = sondev1.PhaseCompleted })
		}, code: 410, want: "are gone"},
		"keeper has exited": {change: func(w *world) {
			change(w, agent(w.owned("web-1-qwer-x", "")), func(p *corev1.Pod) { p.Status.ContainerStatuses = nil })
		}, code: 410, want: "retainFor (1h)"},
		"agent still starting": {change: func(w *world) {
			change(w, agent(w.owned("web-1-qwer-x", "")), func(p *corev1.Pod) {
				p.Status.ContainerStatuses, p.Status.Phase = nil, corev1.PodPending
			})
		}, code: 404, want: "try again in a few seconds"},
		"keys gone": {change: func(w *world) {
			w.remove(&corev1.Secret{ObjectMeta: w.owned("shop-web-keeper", "")})
		}, code: 410, want: "keys of its keepers"},
		"keeper does not answer": {change: func(w *world) { w.keeper.addr = "127.0.0.1:1" }, code: 502, want: "NetworkPolicies"},
		"hostNetwork": {change: func(w *world) {
			change(w, agent(w.owned("web-1-qwer-x", "")), func(p *corev1.Pod) {
				p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, "--host-network")
			})
		}, code: 403, want: "lacks capture on nodes"},
		"an agent that shows no probe": {change: func(w *world) {
			change(w, agent(w.owned("web-1-qwer-x", "")), func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[1:] })
		}, code: 502, want: "it is not an agent"},
		"another agent's Pod in the cache": {change: func(w *world) {
			stale := w.handler.Cache
			w.handler.Cache = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
				List: func(ctx context.Context, _ client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					err := stale.List(ctx, l, opts...)
					if pods, ok := l.(*corev1.PodList); ok {
						pods.Items[0].UID = "one-before"
					}
					return err
				},
			})
		}, code: 410, want: "has just been deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.change != nil {
				tc.change(w)
			}
			path := tc.path
			if path == "" {
				path = webFile
			}
			w.fails(w.get(path, tc.headers), tc.code, tc.want)
			if len(w.events.Events) != 0 {
				t.Errorf("a refusal is recorded as read: %s", <-w.events.Events)
			}
		})
	}
}

// leave deletes the capture while a finalizer still holds it.
func leave(w *world) {
	change(w, w.capture(), func(pc *sondev1.PacketCapture) { pc.Finalizers = []string{"example.org/hold"} })
	w.remove(w.capture())
}

func TestHostNetworkWithTheRight(t *testing.T) {
	w := newWorld(t)
	w.rights.set(true, true)
	change(w, agent(w.owned("web-1-qwer-x", "")), func(p *corev1.Pod) {
		p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, "--host-network")
	})
	if resp := w.get(webFile, nil); resp.code != http.StatusOK {
		t.Errorf("got %d", resp.code)
	}
}

func TestConnectRefusesBadKeys(t *testing.T) {
	k, err := connect(map[string][]byte{captureconfig.SecretClientKey: []byte("x")})
	if err == nil || k != nil {
		t.Errorf("got %v, %v; want no client", k, err)
	}
}

func TestADownloadEndsWithTheRight(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*corev1.Pod)
		withdrawn func(*world)
	}{
		"on Pods": {func(*corev1.Pod) {}, func(w *world) { w.rights.set(false, false) }},
		"on nodes": {
			func(p *corev1.Pod) {
				p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, "--host-network")
			},
			func(w *world) { w.rights.set(true, false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.rights.set(true, true)
			change(w, agent(w.owned("web-1-qwer-x", "")), tc.change)
			// More than the sockets between here and there can hold, so that the download waits for its reader.
			w.keeper.content = make([]byte, 64<<20)
			resp := w.get(webFile, nil)
			if _, err := io.ReadFull(resp.body, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			tc.withdrawn(w)
			if !eventually(func() bool { return len(w.events.Events) > 0 }) {
				t.Fatal("the download goes on")
			}
			if _, err := io.ReadAll(resp.body); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v, want %v", err, io.ErrUnexpectedEOF)
			}
			if note := <-w.events.Events; !strings.Contains(note, "broken off") {
				t.Errorf("event %q", note)
			}
		})
	}
}

// eventually waits for a condition that cannot be awaited.
func eventually(ok func() bool) bool {
	for range 3000 {
		if ok() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}
