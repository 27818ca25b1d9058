package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// liveForm of a name is that of a file of JSON lines; others cannot be read before they have ended.
var liveForm = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._]{0,247}\.ndjson$`)

// live passes on the lines of one Pod's file from a byte on, and those that are written meanwhile, until its trace has
// ended. Unlike a download it does not hold up a manager that ends: the reader asks another replica for the rest.
func (h *Handler) live(w http.ResponseWriter, r *http.Request, s session) error {
	podUID, name := r.PathValue("pod"), r.PathValue("file")
	if !uidForm.MatchString(podUID) || !liveForm.MatchString(name) {
		return failf(http.StatusNotFound, "no such file: the path must end in /live/UID/FILE, as uid in status.pods and a file of JSON lines in the progress")
	}
	from, err := parseFrom(r.URL.Query().Get(keeperapi.QueryFrom))
	if err != nil {
		return err
	}
	agent, keeper, err := h.reach(r.Context(), s, podUID)
	if err != nil {
		return err
	}
	defer keeper.Close()
	resp, err := keeper.Live(r.Context(), h.address(agent), name, from, r.URL.Query().Get(keeperapi.QueryNewest) == "1")
	if err != nil {
		return h.refused(err, agent, name)
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	d := h.delivery(r, s, agent, name)
	d.log.Info("Serving lines", "from", from)
	n, err := h.relay(r.Context(), w, resp.Body)
	return d.end(r.Context(), n, err, "live")
}

// parseFrom reads the number of a byte; nothing is the first.
func parseFrom(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	from, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, failf(http.StatusBadRequest, "%s: write the number of the first byte", keeperapi.QueryFrom)
	}
	return int64(from), nil
}

// relay moves what comes, as it comes.
func (h *Handler) relay(ctx context.Context, w http.ResponseWriter, from io.Reader) (int64, error) {
	rc := http.NewResponseController(w)
	stop := context.AfterFunc(ctx, func() { _ = rc.SetWriteDeadline(time.Unix(1, 0)) }) // as in copy
	defer stop()
	b := make([]byte, 64<<10)
	for total := int64(0); ; {
		if err := h.patience(ctx, rc); err != nil {
			return total, err
		}
		if err := rc.Flush(); err != nil { // at first the header: there may be no line for long
			return total, fmt.Errorf("flush lines: %w", err)
		}
		n, err := from.Read(b)
		if n > 0 {
			// Waiting for lines has used up the time for writing them.
			if err := h.patience(ctx, rc); err != nil {
				return total, err
			}
			written, err := w.Write(b[:n])
			total += int64(written)
			if err != nil {
				return total, fmt.Errorf("copy lines: %w", err)
			}
		}
		if errors.Is(err, io.EOF) {
			return total, context.Cause(ctx) // the keeper may see the end of ctx first, and end the stream as if it were complete
		}
		if err != nil {
			return total, fmt.Errorf("read lines: %w", err)
		}
	}
}
