package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/audit"
	"github.com/sonde-operator/sonde/internal/keeperapi"
)

const (
	// copyBytes are sent before the deadline of a client is set anew.
	copyBytes = 256 << 10
	// stallTimeout is how long a client may take for copyBytes.
	stallTimeout = 60 * time.Second
	// maxRange bounds a Range header: nobody needs many ranges of a capture.
	maxRange = 256
)

// passed are the headers of the keeper that reach the client. Content-Length among them is how a
// client notices that a download broke off.
var passed = []string{"Content-Length", "Content-Range", "Accept-Ranges", "Last-Modified", "Etag"}

// file serves one file of one Pod: whole, or the range that was asked for.
func (h *Handler) file(w http.ResponseWriter, r *http.Request, s session) error {
	podUID, name, byteRange := r.PathValue("pod"), r.PathValue("file"), r.Header.Get("Range")
	if !uidForm.MatchString(podUID) || !fileForm.MatchString(name) {
		return failf(http.StatusNotFound, "no such file: the path must end in /files/UID/FILE, as uid and files in status.pods")
	}
	if len(byteRange) > maxRange || strings.Contains(byteRange, ",") {
		return failf(http.StatusRequestedRangeNotSatisfiable, "one range at a time: write Range: bytes=FIRST-")
	}
	agent, err := h.agentFor(r.Context(), s.capture, podUID)
	if err != nil {
		return err
	}
	if err := h.mayRead(r.Context(), s, agent); err != nil {
		return err
	}
	keeper, err := h.keeper(r.Context(), s.capture)
	if err != nil {
		return err
	}
	defer keeper.Close()
	resp, err := h.open(r.Context(), keeper, agent, name, byteRange)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for _, k := range passed {
		if v, ok := resp.Header[k]; ok {
			w.Header()[k] = v
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	w.WriteHeader(resp.StatusCode)
	if r.Method == http.MethodHead {
		return nil
	}
	return h.deliver(w, r, s, agent, name, resp)
}

// deliver copies the bytes and leaves the record of who got them, also of a part.
func (h *Handler) deliver(w http.ResponseWriter, r *http.Request, s session, agent *corev1.Pod, name string, resp *http.Response) error {
	defer h.Drain.Enter()()
	pod := agent.Annotations[sondev1.AnnotationTargetPod]
	log := ctrl.LoggerFrom(r.Context()).WithValues("captureUID", s.capture.GetUID(), "targetNamespace", s.capture.Common().TargetNamespace, "pod", pod, "file", name)
	log.Info("Serving result", "wantBytes", resp.ContentLength)
	n, err := h.copy(r.Context(), w, resp.Body)
	switch {
	case err != nil && context.Cause(r.Context()) != nil:
		err = context.Cause(r.Context())
	case err == nil && resp.ContentLength >= 0 && n != resp.ContentLength:
		err = io.ErrUnexpectedEOF
	}
	outcome := "whole"
	if err != nil {
		outcome = "broken off"
		log = log.WithValues("cause", err.Error())
	}
	log.Info("Served result", audit.Key, audit.ResultServed, "bytes", n, "outcome", outcome)
	if h.Recorder != nil {
		h.Recorder.Eventf(s.capture, nil, corev1.EventTypeNormal, "ResultServed", "Serve",
			"%s read %d bytes of %s of Pod %s (%s)", shown(s.who.Username), n, name, pod, outcome)
	}
	if err != nil {
		return fmt.Errorf("%w after %d bytes: %w", errBroken, n, err)
	}
	return nil
}

// copy moves bytes as long as the client takes them and ctx lasts.
func (h *Handler) copy(ctx context.Context, w http.ResponseWriter, from io.Reader) (int64, error) {
	rc := http.NewResponseController(w)
	// A write to a client that does not read ends by its deadline alone.
	stop := context.AfterFunc(ctx, func() { _ = rc.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var total int64
	for {
		// Not every ResponseWriter has deadlines; the server's has.
		if err := rc.SetWriteDeadline(h.Clock.Now().Add(stallTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return total, fmt.Errorf("set deadline: %w", err)
		}
		if ctx.Err() != nil { // looked at after the deadline, which may just have overwritten that of the end
			return total, context.Cause(ctx)
		}
		n, err := io.CopyN(w, from, copyBytes)
		total += n
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, fmt.Errorf("copy result: %w", err)
		}
	}
}

// open asks the keeper for a file and turns its refusals into ours.
func (h *Handler) open(ctx context.Context, keeper Keeper, agent *corev1.Pod, name, byteRange string) (*http.Response, error) {
	resp, err := keeper.File(ctx, h.address(agent), name, byteRange)
	if err == nil {
		return resp, nil
	}
	var status *keeperapi.StatusError
	if !errors.As(err, &status) {
		return nil, failf(http.StatusBadGateway, "the agent's Pod %s does not answer (%v): try again; if it stays so, see whether NetworkPolicies let the manager reach port 8443 in namespace %s", agent.Name, err, h.Namespace)
	}
	switch status.Code {
	case http.StatusNotFound:
		return nil, failf(http.StatusNotFound, "no file %s of this Pod: see files in status.pods", name)
	case http.StatusRequestedRangeNotSatisfiable:
		return nil, h.outOfRange(ctx, keeper, agent, name)
	}
	return nil, failf(http.StatusBadGateway, "the agent's Pod %s refuses: %v", agent.Name, status)
}

// outOfRange answers a range behind the end of a file with the size, which a client that resumes a
// download needs in order to see that it has everything (RFC 9110, section 15.5.17).
func (h *Handler) outOfRange(ctx context.Context, keeper Keeper, agent *corev1.Pod, name string) error {
	f := &failure{code: http.StatusRequestedRangeNotSatisfiable, message: "the range lies behind the end of the file"}
	if resp, err := keeper.File(ctx, h.address(agent), name, "bytes=0-0"); err == nil {
		defer resp.Body.Close()
		if _, size, ok := strings.Cut(resp.Header.Get("Content-Range"), "/"); ok {
			f.header = http.Header{"Content-Range": {"bytes */" + size}}
		}
	}
	return f
}

// shown bounds a user's name in an event.
func shown(name string) string {
	if len(name) > 128 {
		return strings.ToValidUTF8(name[:128], "") + "..."
	}
	return name
}
