package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

const (
	// lineInterval is the shortest time between two lines of a watched progress.
	lineInterval = 500 * time.Millisecond
	// writeTimeout is how long one write of an answer may take. A whole answer has no limit: files are large and links are
	// slow.
	writeTimeout = 2 * time.Minute
)

// stopReasons are the reasons that a client may give for a stop.
var stopReasons = []string{account.ReasonStopped, account.ReasonTargetGone, account.ReasonAccessRevoked, account.ReasonPaused}

// handler answers the requests of the manager.
type handler struct {
	results  *results
	control  *control
	progress *progress
	release  context.CancelFunc
	recounts recounts
	log      *slog.Logger
}

// routes returns the handler of all paths.
func (h *handler) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(keeperapi.PathProgress, allow(h.getProgress, http.MethodGet))
	mux.HandleFunc(keeperapi.PathFiles+"{name}", allow(h.getFile, http.MethodGet, http.MethodHead))
	mux.HandleFunc(keeperapi.PathLive+"{name}", allow(h.live, http.MethodGet))
	mux.HandleFunc(keeperapi.PathRecount, allow(h.recountResult, http.MethodPost))
	mux.HandleFunc(keeperapi.PathStop, allow(h.stop, http.MethodPost))
	mux.HandleFunc(keeperapi.PathRelease, allow(h.releaseResult, http.MethodPost))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "no such path: see internal/wire/keeperapi for all paths")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keeperapi.SetVersion(w.Header())
		if err := keeperapi.CheckVersion(r.Header); err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// allow passes requests of the given methods to next.
func allow(next http.HandlerFunc, methods ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			refuse(w, http.StatusMethodNotAllowed, "use "+methods[0])
			return
		}
		next(w, r)
	}
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error means that the client has gone.
	_ = json.NewEncoder(w).Encode(keeperapi.ErrorBody{Error: message})
}

func (h *handler) getProgress(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get(keeperapi.QueryWatch) == "1" {
		h.watch(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(slices.Clone(h.progress.get().line), '\n'))
}

// watch writes a line at once and for each change, with lineInterval between them, until the last one.
func (h *handler) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := newDeadlineWriter(w)
	heartbeat := time.NewTicker(keeperapi.HeartbeatInterval)
	defer heartbeat.Stop()
	for {
		s := h.progress.get()
		if !out.line(s.line) || !s.final.IsZero() {
			return
		}
		if !wait(r.Context(), lineInterval) {
			return
		}
		for waiting := true; waiting; {
			select {
			case <-r.Context().Done():
				return
			case <-s.changed:
				waiting = false
			case <-heartbeat.C:
				if !out.line(nil) {
					return
				}
			}
		}
	}
}

// wait returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (h *handler) getFile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	files := h.progress.get().account.Files
	f, size, ok := h.openResult(w, name, files)
	if !ok {
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	// The length of the answer is fixed here: a running capture makes the file grow.
	content := &linkedFile{f: f}
	http.ServeContent(newDeadlineWriter(w), r, "", time.Time{}, io.NewSectionReader(content, 0, h.recounts.size(name, completeSize(f, name, size, files))))
	if content.removed {
		h.log.Info("Aborting a download: a newer file has replaced this one", "file", name)
		panic(http.ErrAbortHandler) // so that the client sees an incomplete answer
	}
}

// openResult opens a file of the result. files are the account's files. If the file is not available, openResult
// answers with an error and returns false.
func (h *handler) openResult(w http.ResponseWriter, name string, files []account.File) (f *os.File, size int64, ok bool) {
	err := errNotServed
	if isServed(name, files) {
		f, size, err = h.results.open(name)
	}
	switch {
	case errors.Is(err, errNotServed):
		refuse(w, http.StatusNotFound, err.Error())
	case err != nil:
		h.log.Error("Opening a file failed", "file", name, "error", err)
		refuse(w, http.StatusInternalServerError, "the file cannot be opened: see the keeper's log")
	}
	return f, size, err == nil
}

func (h *handler) stop(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, keeperapi.MaxStopBytes))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must be complete and have at most %d bytes", keeperapi.MaxStopBytes))
		return
	}
	reason, err := parseStop(b)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := h.control.stop(reason); err != nil {
		h.log.Error("Stopping the probe failed", "reason", reason, "error", err)
		refuse(w, http.StatusInternalServerError, "the probe cannot be stopped: see the keeper's log")
		return
	}
	h.log.Info("Stopping the probe", "reason", reason)
	w.WriteHeader(http.StatusNoContent)
}

// parseStop reads the body of a stop request.
func parseStop(b []byte) (string, error) {
	var req keeperapi.StopRequest
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil || d.More() {
		return "", fmt.Errorf(`body: want {"reason":"%s"}`, account.ReasonStopped)
	}
	if !slices.Contains(stopReasons, req.Reason) {
		return "", fmt.Errorf("reason %.64q: want one of %v", req.Reason, stopReasons)
	}
	return req.Reason, nil
}

func (h *handler) releaseResult(w http.ResponseWriter, _ *http.Request) {
	h.log.Info("Releasing the result")
	w.WriteHeader(http.StatusNoContent)
	h.release()
}

// deadlineWriter gives each write its own deadline. It hides the ReadFrom of the server's writer: with that, a whole file
// would be one write.
type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// newDeadlineWriter also removes the request's read deadline. The server keeps reading to notice that the client has
// gone, and the deadline would end the answer.
func newDeadlineWriter(w http.ResponseWriter) deadlineWriter {
	p := deadlineWriter{ResponseWriter: w, control: http.NewResponseController(w)}
	_ = p.control.SetReadDeadline(time.Time{}) // fails only if the connection is closed: the next write fails, too
	return p
}

// Write implements io.Writer.
func (p deadlineWriter) Write(b []byte) (int, error) {
	if err := p.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, fmt.Errorf("set deadline: %w", err)
	}
	return p.ResponseWriter.Write(b)
}

// line writes and flushes one line. It returns false if the client has gone.
func (p deadlineWriter) line(b []byte) bool {
	if _, err := p.Write(append(slices.Clone(b), '\n')); err != nil {
		return false
	}
	return p.control.Flush() == nil
}
