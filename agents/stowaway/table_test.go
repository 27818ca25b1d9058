package stowaway

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestTable checks that a carrier reads what the State says.
func TestTable(t *testing.T) {
	quote := `"}]{<` + strings.Repeat("ü", 100)
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	state := &tunnel.State{Version: tunnel.Version, Generation: "x", Routes: []tunnel.Route{
		{ID: "plain", Name: "shop/plain", Created: at, ClientKey: "a", Port: 80, Pods: []string{"p"}},
		{
			ID: "all", Name: "shop/all", Created: at.Add(1), ClientKey: "b", Port: 81, Pods: []string{"q", "p"}, ProbesToClient: true, GracePeriod: time.Minute,
			Match: &httpmatch.Match{Path: &httpmatch.Text{Exact: &quote}, Headers: []httpmatch.Header{{Name: "x", Text: httpmatch.Text{Prefix: &quote}}}},
		},
		{ID: "other", Name: "shop/other", Created: at, ClientKey: "c", Port: 80, Pods: []string{"q"}},
	}}
	i, err := newIndex(state, "manager")
	if err != nil {
		t.Fatal(err)
	}
	var of table
	want := tunnel.Table{Version: tunnel.Version}
	for n, r := range i.byPod["p"] {
		from := state.Routes[n]
		of = append(of, tableEntry{r, n == 1})
		want.Routes = append(want.Routes, tunnel.TableRoute{
			ID: from.ID, Created: from.Created, Port: from.Port, Match: from.Match, ProbesToClient: from.ProbesToClient, GracePeriod: from.GracePeriod, Live: n == 1,
		})
	}
	read := func(of table) (got tunnel.Table) {
		var line bytes.Buffer
		if err := of.write(&line); err != nil {
			t.Fatal(err)
		}
		if b := line.Bytes(); bytes.IndexByte(b, '\n') != len(b)-1 {
			t.Errorf("not one line: %q", b)
		}
		if err := json.Unmarshal(line.Bytes(), &got); err != nil {
			t.Fatalf("%q: %v", line.Bytes(), err)
		}
		return got
	}
	if diff := cmp.Diff(want, read(of)); diff != "" {
		t.Errorf("-State +Table:\n%s", diff)
	}
	if diff := cmp.Diff(tunnel.Table{Version: tunnel.Version, Routes: []tunnel.TableRoute{}}, read(nil)); diff != "" {
		t.Errorf("no routes:\n%s", diff)
	}
}
