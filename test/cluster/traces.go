package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// FilesUsed is the number of files that each Pod uses. Each file is used by a program that the Pod starts for it.
const FilesUsed = 50

// FilesOf returns the path prefix of a Pod's files, in a folder where every user may write.
func FilesOf(pod string) string { return "/dev/shm/of-" + pod + "-" }

// UseFiles makes a Pod use its files.
func UseFiles(t *testing.T, p *corev1.Pod) {
	t.Helper()
	UseFilesAt(t, p, FilesOf(p.Name))
}

// UseFilesAt makes a Pod write and read FilesUsed files whose paths begin with path.
func UseFilesAt(t *testing.T, p *corev1.Pod, path string) {
	t.Helper()
	out, err := Exec(t.Context(), p, "/workload", "files", "-path", path, "-count", fmt.Sprint(FilesUsed))
	var used struct{ Count int }
	if err != nil || json.Unmarshal([]byte(out), &used) != nil || used.Count != FilesUsed {
		t.Fatalf("%s printed %q (%v), want %d files used", p.Name, out, err, FilesUsed)
	}
}

// ResultFile fetches the only file of a status entry.
func ResultFile(t *testing.T, capture sondev1.Capture, token string, e *sondev1.PodResult) []byte {
	t.Helper()
	var body string
	Eventually(t, 10*time.Second, "file of "+e.Name, func(context.Context) (err error) {
		var status int
		// One replica may not know the token yet.
		if status, body = GetResult(t, "mallory", ResultPath(capture)+"/files/"+e.UID+"/"+e.Files[0].Name, token); status != http.StatusOK {
			err = fmt.Errorf("status %d, want 200: %.300s", status, body)
		}
		return err
	})
	return []byte(body)
}

// ReadTrace decodes a trace file: its header, its records and its account.
func ReadTrace(t *testing.T, b []byte) (header *tracefmt.Header, records []*tracefmt.Record, end *tracefmt.Account) {
	t.Helper()
	r := tracefmt.NewReader(bytes.NewReader(b))
	for {
		line, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return header, records, end
		case err != nil:
			t.Fatal(err)
		case line.Header != nil:
			header = line.Header
		case line.Record != nil:
			records = append(records, line.Record)
		case line.Account != nil:
			end = line.Account
		}
	}
}
