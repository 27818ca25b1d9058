package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// liveForm is the form of names of files of JSON lines and of packets. Other files cannot be read before they are complete.
var liveForm = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._]{0,247}\.(ndjson|pcapng)$`)

// liveTypes are the media types of these files.
var liveTypes = map[string]string{".ndjson": "application/x-ndjson", ".pcapng": "application/x-pcapng"}

// live relays the lines, or the blocks of packets, of one Pod's file from a byte on, old and new ones, until its capture has ended. In a
// ring the keeper goes on with the next file: the right to one file of a Pod is the right to all. Unlike a download it does not delay the
// end of the manager: the reader continues at another replica.
func (h *Handler) live(w http.ResponseWriter, r *http.Request, s session) error {
	podUID, name := r.PathValue("pod"), r.PathValue("file")
	if !uidForm.MatchString(podUID) || !liveForm.MatchString(name) {
		return failf(http.StatusNotFound, "no such file: the path must end in /live/UID/FILE, as uid in status.pods and a file of JSON lines or packets in the progress")
	}
	q, err := keeperapi.ParseLiveQuery(r.URL.Query())
	if err != nil {
		return failf(http.StatusBadRequest, "%v", err)
	}
	if _, _, ok := captureconfig.ParseRingFile(name); q.Ring && !ok {
		return failf(http.StatusBadRequest, "%s: %s is no file of a ring, whose names end in a number of ten digits: omit %[1]s", keeperapi.QueryRing, name)
	}
	agent, keeper, err := h.reach(r.Context(), s, podUID)
	if err != nil {
		return err
	}
	defer keeper.Close()
	resp, err := keeper.Live(r.Context(), h.address(agent), name, q)
	if err != nil {
		return h.refused(err, agent, name)
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", liveTypes[path.Ext(name)])
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if q.Ring {
		name += " and the files after it" // the record is about bytes of all of them
	}
	d := h.delivery(r, s, agent, name, q.From)
	d.log.Info("Serving a growing file")
	n, err := h.relay(r.Context(), w, resp.Body)
	return d.end(r.Context(), n, err, outcomeLive)
}

// relay copies lines as they arrive.
func (h *Handler) relay(ctx context.Context, w http.ResponseWriter, from io.Reader) (int64, error) {
	rc := http.NewResponseController(w)
	stop := context.AfterFunc(ctx, func() { _ = rc.SetWriteDeadline(time.Unix(1, 0)) }) // see copy
	defer stop()
	b := make([]byte, 64<<10)
	for total := int64(0); ; {
		if err := h.extendDeadline(ctx, rc); err != nil {
			return total, err
		}
		if err := rc.Flush(); err != nil { // the first flush sends the header, before the first line
			return total, fmt.Errorf("flush lines: %w", err)
		}
		n, err := from.Read(b)
		if n > 0 {
			// The read may have taken longer than the deadline.
			if err := h.extendDeadline(ctx, rc); err != nil {
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
