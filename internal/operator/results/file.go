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

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

const (
	// copyBytes are sent before the deadline of a client is extended.
	copyBytes = 256 << 10
	// stallTimeout is how long a client may take for copyBytes.
	stallTimeout = 60 * time.Second
	// maxRange bounds a Range header, in bytes. One range is short.
	maxRange = 256
)

// forwarded are the headers of the keeper that reach the client. By Content-Length a client notices that a download broke
// off.
var forwarded = []string{"Content-Length", "Content-Range", "Accept-Ranges", "Last-Modified", "Etag"}

// file serves one file of one Pod, or the requested range of it.
func (h *Handler) file(w http.ResponseWriter, r *http.Request, s session) error {
	podUID, name, byteRange := r.PathValue("pod"), r.PathValue("file"), r.Header.Get("Range")
	if !uidForm.MatchString(podUID) || !fileForm.MatchString(name) {
		return failf(http.StatusNotFound, "no such file: the path must end in /files/UID/FILE, as uid and files in status.pods")
	}
	if len(byteRange) > maxRange || strings.Contains(byteRange, ",") {
		return failf(http.StatusRequestedRangeNotSatisfiable, "one range at a time: write Range: bytes=FIRST-")
	}
	agent, keeper, err := h.reach(r.Context(), s, podUID)
	if err != nil {
		return err
	}
	defer keeper.Close()
	resp, err := h.open(r.Context(), keeper, agent, name, byteRange)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for _, k := range forwarded {
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

// reach connects to the keeper of one target Pod if the requester may read its files. The caller closes the keeper.
func (h *Handler) reach(ctx context.Context, s session, podUID string) (*corev1.Pod, Keeper, error) {
	agent, err := h.agentFor(ctx, s.kind, s.capture, podUID)
	if err != nil {
		return nil, nil, err
	}
	if err := h.mayRead(ctx, s, agent); err != nil {
		return nil, nil, err
	}
	keeper, err := h.keeper(ctx, s.capture)
	if err != nil {
		return nil, nil, err
	}
	return agent, keeper, nil
}

// deliver copies the bytes and leaves the audit record, also if it fails.
func (h *Handler) deliver(w http.ResponseWriter, r *http.Request, s session, agent *corev1.Pod, name string, resp *http.Response) error {
	from, total := rangeOf(resp)
	d := h.delivery(r, s, agent, name, from)
	d.log.Info("Serving result", "wantBytes", resp.ContentLength)
	n, err := h.copy(r.Context(), w, resp.Body)
	if err == nil && resp.ContentLength >= 0 && n != resp.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	outcome := outcomePart
	switch {
	case from == 0 && n == total:
		outcome = outcomeWhole
	case from+n == total:
		outcome = outcomeRest
	}
	return d.end(r.Context(), n, err, outcome)
}

// rangeOf returns the first byte that an answer of the keeper has, and the size of the file, or -1.
func rangeOf(resp *http.Response) (from, total int64) {
	if resp.StatusCode != http.StatusPartialContent {
		return 0, resp.ContentLength
	}
	var last int64
	if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &last, &total); err != nil {
		return 0, -1
	}
	return from, total
}

// copy copies bytes to the client until the end of the file or of ctx.
func (h *Handler) copy(ctx context.Context, w http.ResponseWriter, from io.Reader) (int64, error) {
	rc := http.NewResponseController(w)
	// Only a deadline ends a write to a client that does not read.
	stop := context.AfterFunc(ctx, func() { _ = rc.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var total int64
	for {
		if err := h.extendDeadline(ctx, rc); err != nil {
			return total, err
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

// extendDeadline gives the client time for the next write.
func (h *Handler) extendDeadline(ctx context.Context, rc *http.ResponseController) error {
	// Not every ResponseWriter has deadlines; the server's has.
	if err := rc.SetWriteDeadline(h.Clock.Now().Add(stallTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("set deadline: %w", err)
	}
	if ctx.Err() != nil { // checked last: the new deadline may have replaced the one that ends the write
		return context.Cause(ctx)
	}
	return nil
}

// open requests a file from the keeper, and turns its refusals into failures.
func (h *Handler) open(ctx context.Context, keeper Keeper, agent *corev1.Pod, name, byteRange string) (*http.Response, error) {
	resp, err := keeper.File(ctx, h.address(agent), name, byteRange)
	if err == nil {
		return resp, nil
	}
	if status, ok := errors.AsType[*keeperapi.StatusError](err); ok && status.Code == http.StatusRequestedRangeNotSatisfiable {
		return nil, h.outOfRange(ctx, keeper, agent, name)
	}
	return nil, h.refused(err, agent, name)
}

// refused returns the failure for a file that a keeper did not serve.
func (h *Handler) refused(err error, agent *corev1.Pod, name string) error {
	status, ok := errors.AsType[*keeperapi.StatusError](err)
	switch {
	case !ok:
		return failf(http.StatusBadGateway, "the agent's Pod %s does not answer (%v): try again; if this continues, check whether NetworkPolicies let the manager reach port 8443 in namespace %s", agent.Name, err, h.Namespace)
	case status.Code == http.StatusNotFound:
		return failf(http.StatusNotFound, "no file %s of this Pod: see files in status.pods", name)
	}
	return failf(http.StatusBadGateway, "the agent's Pod %s refuses: %v: see the log of its container %s", agent.Name, status, captureconfig.ContainerKeeper)
}

// outOfRange answers a range beyond the end of a file with the file's size. A client that resumes a download sees from it
// that its copy is complete (RFC 9110, section 15.5.17).
func (h *Handler) outOfRange(ctx context.Context, keeper Keeper, agent *corev1.Pod, name string) error {
	f := &failure{code: http.StatusRequestedRangeNotSatisfiable, message: "the range lies beyond the end of the file"}
	if resp, err := keeper.File(ctx, h.address(agent), name, "bytes=0-0"); err == nil {
		defer resp.Body.Close()
		if _, size, ok := strings.Cut(resp.Header.Get("Content-Range"), "/"); ok {
			f.header = http.Header{"Content-Range": {"bytes */" + size}}
		}
	}
	return f
}
