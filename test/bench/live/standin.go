package live

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// Names of the capture that the stand-in serves.
const (
	namespace   = "bench"
	captureName = "bench"
)

// standIn answers for the API server and the manager what "kubectl sonde follow" asks for one running capture. It relays
// the files from the keepers as the manager does. It checks no rights.
type standIn struct {
	pods   []pod
	keeper *keeperapi.Client

	mu       sync.Mutex
	capture  *v1alpha1.PacketCapture
	accounts map[string]json.RawMessage // by the UID of a Pod
	changed  chan struct{}              // closed and replaced at each change
}

func runStandIn(ctx context.Context, s *settings) error {
	client, err := keeperapi.NewClient(s.Pairs[captureconfig.SecretServerCert], s.Pairs[captureconfig.SecretClientCert], s.Pairs[captureconfig.SecretClientKey])
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(s.Identity, s.Identity)
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	a := &standIn{pods: s.Pods, keeper: client, capture: newCapture(s.Pods), accounts: map[string]json.RawMessage{}, changed: make(chan struct{})}
	for _, p := range s.Pods {
		go a.watchKeeper(ctx, p)
	}
	l, err := listen(ctx)
	if err != nil {
		return err
	}
	announce(l)
	server := &http.Server{Handler: a.routes(), TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, ReadHeaderTimeout: time.Minute}
	return server.ServeTLS(l, "", "")
}

func newCapture(pods []pod) *v1alpha1.PacketCapture {
	c := &v1alpha1.PacketCapture{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PacketCapture"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: captureName, UID: "bench", ResourceVersion: "1", CreationTimestamp: metav1.Now()},
	}
	c.Spec.Duration = "1h"
	c.Status.Phase, c.Status.Target = v1alpha1.PhaseCapturing, "Deployment/bench"
	for _, p := range pods {
		c.Status.Pods = append(c.Status.Pods, v1alpha1.PodResult{UID: p.UID, Name: p.Name, Node: "bench", Phase: v1alpha1.PhaseCapturing})
	}
	return c
}

func (a *standIn) routes() http.Handler {
	const kinds = "/apis/monitoring.openshift.tpg/v1alpha1/namespaces/" + namespace + "/"
	const proxied = "/api/v1/namespaces/sonde-system/services/https:sonde-results:https/proxy/v1/namespaces/" + namespace + "/packetcaptures/" + captureName
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+kinds+"packetcaptures", a.watch)
	mux.HandleFunc("GET "+kinds+"packetcaptures/"+captureName, func(w http.ResponseWriter, _ *http.Request) {
		c, _ := a.current()
		reply(w, http.StatusOK, c)
	})
	mux.HandleFunc("POST "+kinds+"resultaccesses", grant)
	mux.HandleFunc("DELETE "+kinds+"resultaccesses/{name}", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	})
	mux.HandleFunc("GET "+proxied+"/progress", a.progress)
	mux.HandleFunc("GET "+proxied+"/live/{uid}/{file}", a.live)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { // among them Pods and Services, whose names are left out then
		reply(w, http.StatusForbidden, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden,
			Code: http.StatusForbidden, Message: "the benchmark has no " + r.URL.Path,
		})
	})
	return mux
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}

func grant(w http.ResponseWriter, r *http.Request) {
	access := &v1alpha1.ResultAccess{}
	if err := json.NewDecoder(r.Body).Decode(access); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	access.Name = access.GenerateName + "1"
	reply(w, http.StatusCreated, access)
}

// current returns the capture, and a channel that is closed at the next change.
func (a *standIn) current() (*v1alpha1.PacketCapture, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.capture.DeepCopy(), a.changed
}

// watchKeeper follows the account of a Pod's probe. The capture is completed when all probes have ended.
func (a *standIn) watchKeeper(ctx context.Context, p pod) {
	err := a.keeper.Watch(ctx, p.Keeper, func(acc account.Account) error {
		acc.Files = slices.DeleteFunc(acc.Files, func(f account.File) bool { return f.Name != p.File }) // a writer has the files of all Pods
		line, err := acc.Marshal()
		if err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.accounts[p.UID] = line
		if acc.State == account.StateDone {
			a.end(p.UID, &acc)
		}
		close(a.changed)
		a.changed = make(chan struct{})
		return nil
	})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "follow the keeper:", err)
	}
}

// end completes a Pod in the status. The caller holds the lock.
func (a *standIn) end(uid string, acc *account.Account) {
	over := true
	for i := range a.capture.Status.Pods {
		p := &a.capture.Status.Pods[i]
		if p.UID == uid {
			p.Phase, p.Reason, p.Packets, p.Bytes = v1alpha1.PhaseCompleted, acc.Reason, acc.Packets, acc.Bytes
		}
		over = over && p.Phase.Final()
	}
	if over {
		a.capture.Status.Phase = v1alpha1.PhaseCompleted
		a.capture.ResourceVersion = "2"
	}
}

// watch sends the capture when it has changed.
func (a *standIn) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for last := ""; ; {
		c, changed := a.current()
		if c.ResourceVersion != last {
			last = c.ResourceVersion
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": c})
			w.(http.Flusher).Flush() //nolint:forcetypeassert // of net/http
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// progress sends the account of each Pod, and each change, until all have ended.
func (a *standIn) progress(w http.ResponseWriter, r *http.Request) {
	sent := map[string]string{}
	for {
		c, changed := a.current()
		for _, p := range a.pods {
			a.mu.Lock()
			acc := a.accounts[p.UID]
			a.mu.Unlock()
			if len(acc) > 0 && sent[p.UID] != string(acc) {
				sent[p.UID] = string(acc)
				fmt.Fprintf(w, `{"pod":%q,"uid":%q,"node":"bench","phase":"Capturing","account":%s}`+"\n", p.Name, p.UID, acc)
			}
		}
		w.(http.Flusher).Flush() //nolint:forcetypeassert // of net/http
		if c.Status.Phase.Final() {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// live relays a growing file as it arrives (internal/operator/results).
func (a *standIn) live(w http.ResponseWriter, r *http.Request) {
	i := slices.IndexFunc(a.pods, func(p pod) bool { return p.UID == r.PathValue("uid") && p.File == r.PathValue("file") })
	q, err := keeperapi.ParseLiveQuery(r.URL.Query())
	if i < 0 || err != nil {
		http.Error(w, `{"error":"no such file"}`, http.StatusNotFound)
		return
	}
	resp, err := a.keeper.Live(r.Context(), a.pods[i].Keeper, a.pods[i].File, q)
	if err != nil {
		http.Error(w, fmt.Sprintf(`{"error":%q}`, err), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", "application/x-pcapng")
	w.WriteHeader(http.StatusOK)
	rc, b := http.NewResponseController(w), make([]byte, 64<<10)
	for {
		if rc.Flush() != nil {
			return
		}
		n, err := resp.Body.Read(b)
		if _, werr := w.Write(b[:n]); werr != nil || errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}
