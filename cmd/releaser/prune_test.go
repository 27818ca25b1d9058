package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// configMaps is an API server that serves the ConfigMaps of one namespace, and counts what is deleted.
type configMaps struct {
	objects map[string]*corev1.ConfigMap
	// refused answers a method with an error, such as GET.
	refused string

	mu      sync.Mutex
	deleted []string
}

// ServeHTTP implements http.Handler.
func (c *configMaps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resources := metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: []string{"get", "delete"}}}}
	name, isObject := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/acme/configmaps/")
	switch {
	case r.URL.Path == "/api":
		answer(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		answer(w, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}})
	case r.URL.Path == "/api/v1":
		resources.TypeMeta = metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}
		answer(w, http.StatusOK, resources)
	case !isObject || c.objects[name] == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == c.refused:
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	default:
		if r.Method == http.MethodDelete {
			c.mu.Lock()
			c.deleted = append(c.deleted, name)
			c.mu.Unlock()
		}
		answer(w, http.StatusOK, c.objects[name])
	}
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	answer(w, int(code), metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "refused"})
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// Helm's upgrade skips an object that it has to delete and cannot read. The releaser looks once more, and reports what it cannot delete.
func TestPruneOfTheDeployedRevision(t *testing.T) {
	const uid = "1"
	removed := func(owner, policy string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "acme", Name: "removed", Annotations: map[string]string{"helm.sh/resource-policy": policy},
				OwnerReferences: []metav1.OwnerReference{ownerOf(release.Anchor{Name: "anchor", UID: owner})},
			},
		}
	}
	for name, tc := range map[string]struct {
		object      *corev1.ConfigMap
		refused     string
		hook        bool // it has become one
		wantDeleted bool
		wantMessage string
	}{
		"left":                    {object: removed(uid, ""), wantDeleted: true},
		"a hook now":              {object: removed(uid, ""), hook: true},
		"gone":                    {},
		"cannot be read":          {object: removed(uid, ""), refused: http.MethodGet, wantMessage: "ConfigMap removed: "},
		"cannot be deleted":       {object: removed(uid, ""), refused: http.MethodDelete, wantMessage: "ConfigMap removed: "},
		"is to stay":              {object: removed(uid, "keep")},
		"belongs to someone else": {object: removed("2", "")},
	} {
		t.Run(name, func(t *testing.T) {
			api := &configMaps{objects: map[string]*corev1.ConfigMap{}, refused: tc.refused}
			if tc.object != nil {
				api.objects["removed"] = tc.object
			}
			a := attemptAt(t, api, uid)
			var before []*helmrelease.Release
			for i, names := range [][]string{{"older"}, {"same", "removed"}, {"same"}} {
				r := &helmrelease.Release{Name: "r", Namespace: "acme", Version: i + 1, Info: &helmrelease.Info{Status: common.StatusSuperseded}}
				for _, name := range names {
					r.Manifest += fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n", name)
				}
				if i < 2 {
					before = append(before, r)
				} else {
					r.Info.Status = common.StatusDeployed
					if tc.hook {
						r.Hooks = []*helmrelease.Hook{{Manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: removed}\n"}}
					}
				}
				if err := a.config.Releases.Create(r); err != nil {
					t.Fatal(err)
				}
			}
			got := a.success(release.ReasonDriftRepaired, "repaired", before)
			if tc.wantMessage == "" && got.Message != "repaired" || !strings.HasPrefix(got.Message, "repaired") || !strings.Contains(got.Message, tc.wantMessage) {
				t.Errorf("message %q, want %q", got.Message, tc.wantMessage)
			}
			if deleted := slices.Contains(api.deleted, "removed"); deleted != tc.wantDeleted || got.Outcome != release.Ready {
				t.Errorf("%s, deleted %t, want %t", got.Outcome, deleted, tc.wantDeleted)
			}
		})
	}
}

// attemptAt returns an attempt at a server. Its history is in memory.
func attemptAt(t *testing.T, api http.Handler, uid string) *attempt {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	flags, namespace, cache := genericclioptions.NewConfigFlags(false), "acme", t.TempDir()
	flags.APIServer, flags.Namespace, flags.CacheDir = &server.URL, &namespace, &cache
	a, err := newAttempt(&release.Request{Release: "r", Namespace: namespace, Anchor: release.Anchor{Name: "anchor", UID: uid}}, flags)
	if err != nil {
		t.Fatal(err)
	}
	memory := driver.NewMemory()
	memory.SetNamespace(namespace)
	a.config.Releases = storage.Init(memory)
	return a
}
