package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDefaultSCCs compares the objects with the list from which the roles are generated, and both with the names that
// the admission plugin waits for.
func TestDefaultSCCs(t *testing.T) {
	content, err := assets.ReadFile("assets/openshift-scc.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^metadata: \{name: ([a-z0-9-]+)\}$`).FindAllStringSubmatch(string(content), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	if diff := cmp.Diff(defaultSCCs, names); diff != "" {
		t.Errorf("SecurityContextConstraints (-roles +objects):\n%s", diff)
	}
	// sccadmission's standardSCCNames: without one of them every Pod is refused.
	for _, required := range []string{
		"anyuid", "hostaccess", "hostmount-anyuid", "hostnetwork", "hostnetwork-v2",
		"nonroot", "nonroot-v2", "privileged", "restricted", "restricted-v2",
	} {
		if !slices.Contains(names, required) {
			t.Errorf("%s is missing", required)
		}
	}
}

func TestStateDiffers(t *testing.T) {
	for name, tc := range map[string]struct {
		up, wanted shape
		wantErr    string
	}{
		"the same":            {up: shape{Nodes: 2}, wanted: shape{Nodes: 2}},
		"the same, OpenShift": {up: shape{Nodes: 2, Flavour: openshift}, wanted: shape{Nodes: 2, Flavour: openshift}},
		"the same, disks":     {up: shape{Nodes: 2, NodeDisk: gibibyte}, wanted: shape{Nodes: 2, NodeDisk: gibibyte}},
		"other nodes": {
			up: shape{Nodes: 2}, wanted: shape{Nodes: 1},
			wantErr: "a cluster with 2 nodes is up: run `cluster down` first, or ask for --nodes 2",
		},
		"a plain one is up": {
			up: shape{Nodes: 2}, wanted: shape{Nodes: 2, Flavour: openshift},
			wantErr: "a plain cluster is up: run `cluster down` first, leave --openshift out, or start another beside it with --instance",
		},
		"an OpenShift one is up": {
			up: shape{Nodes: 2, Flavour: openshift}, wanted: shape{Nodes: 1},
			wantErr: "an OpenShift-flavoured cluster is up: run `cluster down` first, add --openshift, or start another beside it with --instance",
		},
		"one without disks is up": {
			up: shape{Nodes: 2}, wanted: shape{Nodes: 2, NodeDisk: gibibyte},
			wantErr: "a cluster whose nodes have no disks of their own is up: run `cluster down` first, leave --node-disk out, or start another beside it with --instance",
		},
		"one with other disks is up": {
			up: shape{Nodes: 2, NodeDisk: gibibyte}, wanted: shape{Nodes: 2, NodeDisk: 512 * mebibyte},
			wantErr: "a cluster whose nodes have disks of 1Gi is up: run `cluster down` first, ask for --node-disk 1Gi, or start another beside it with --instance",
		},
		"one with disks is up": {
			up: shape{Nodes: 2, NodeDisk: gibibyte}, wanted: shape{Nodes: 2},
			wantErr: "a cluster whose nodes have disks of 1Gi is up: run `cluster down` first, ask for --node-disk 1Gi, or start another beside it with --instance",
		},
	} {
		t.Run(name, func(t *testing.T) { checkErr(t, tc.up.differs(tc.wanted), tc.wantErr) })
	}
}

// TestEveryProgramOnce makes sure that no name in a set leads to two binaries. Otherwise the order of the builds would
// decide which API server starts.
func TestEveryProgramOnce(t *testing.T) {
	apiServers := map[flavour]string{plain: "kube", openshift: "openshift-apiserver"}
	for f, want := range apiServers {
		t.Run("flavour "+string(f), func(t *testing.T) {
			owner := map[string]string{}
			for _, b := range allBinaries(f) {
				for name := range (recipe{binary: b}).linked(layout{}) {
					if other, taken := owner[name]; taken {
						t.Errorf("%s is both of %s and %s", name, other, b.name)
					}
					owner[name] = b.name
				}
			}
			if owner["kube-apiserver"] != want {
				t.Errorf("kube-apiserver is of %q, want %q", owner["kube-apiserver"], want)
			}
			if _, found := owner[sccCRD]; found != (f == openshift) {
				t.Errorf("the CRD is in the set: %t", found)
			}
		})
	}
}

// fakeAPI answers one request after another and records them.
type fakeAPI struct {
	answers []string
	asked   []string
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.asked = append(f.asked, fmt.Sprintf("%s %s %d", r.Method, r.URL, len(body)))
	if len(f.answers) == 0 {
		http.Error(w, "unexpected", http.StatusTeapot)
		return
	}
	if f.answers[0] == "" {
		http.Error(w, "forbidden", http.StatusForbidden)
	} else {
		_, _ = io.WriteString(w, f.answers[0])
	}
	f.answers = f.answers[1:]
}

func (f *fakeAPI) client(t *testing.T) *api {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return &api{server: server.URL}
}

func TestTouchNamespaces(t *testing.T) {
	list := func(ranges map[string]string) string {
		var items []any
		for _, name := range []string{"a", "b"} {
			items = append(items, map[string]any{"metadata": map[string]any{"name": name, "annotations": map[string]string{uidRangeAnnotation: ranges[name]}}})
		}
		b, err := json.Marshal(map[string]any{"items": items})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const asksAll, touchesB = "GET /api/v1/namespaces 0", "PATCH /api/v1/namespaces/b 2"
	for name, tc := range map[string]struct {
		answers   []string
		wantAsked []string
		wantErr   string
	}{
		"all have ranges": {answers: []string{list(map[string]string{"a": "1/1", "b": "1/1"})}, wantAsked: []string{asksAll}},
		"one has none": {
			answers:   []string{list(map[string]string{"a": "1/1"}), "{}"},
			wantAsked: []string{asksAll, touchesB}, wantErr: "namespace b has no ranges",
		},
		"refused": {
			answers:   []string{list(map[string]string{"a": "1/1"}), ""},
			wantAsked: []string{asksAll, touchesB}, wantErr: "PATCH /api/v1/namespaces/b: 403 Forbidden: forbidden\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeAPI{answers: tc.answers}
			checkErr(t, touchNamespaces(t.Context(), f.client(t)), tc.wantErr)
			if diff := cmp.Diff(tc.wantAsked, f.asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdmits(t *testing.T) {
	for name, tc := range map[string]struct{ answer, wantErr string }{
		"with an SCC":    {answer: `{"metadata": {"annotations": {"openshift.io/scc": "anyuid"}}}`},
		"without an SCC": {answer: `{"metadata": {}}`, wantErr: "a Pod is admitted without an SCC"},
		"refused":        {wantErr: "POST /api/v1/namespaces/kube-node-lease/pods?dryRun=All: 403 Forbidden: forbidden\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeAPI{answers: []string{tc.answer}}
			checkErr(t, admits(t.Context(), f.client(t)), tc.wantErr)
		})
	}
}

// TestInstances makes sure that two clusters share only the binaries.
func TestInstances(t *testing.T) {
	users := map[string]int{}
	for i := range maxInstance + 1 {
		l := layout{base: "/cache", instance: i}
		for _, name := range []string{l.run(), l.runLock(), l.name(), l.netns("n1"), l.apiForward(), l.registryForward()} {
			if other, used := users[name]; used {
				t.Errorf("clusters %d and %d share %s", other, i, name)
			}
			users[name] = i
		}
		if l.store() != (layout{base: "/cache"}).store() || l.buildLock() != (layout{base: "/cache"}).buildLock() {
			t.Errorf("cluster %d has a store of its own", i)
		}
		// `down` finds what belongs to a cluster by its prefix.
		for other := range maxInstance + 1 {
			if other != i && strings.HasPrefix(layout{instance: other}.netns("n1"), netnsDir+"/"+l.netnsPrefix()) {
				t.Errorf("cluster %d would remove a network of cluster %d", i, other)
			}
		}
	}
}
