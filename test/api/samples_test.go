//go:build api

package api

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// TestSamples: the API server accepts the examples in config/samples and the documents unchanged.
func TestSamples(t *testing.T) {
	ns := namespace(t, nil)
	accepted := func(where, text string) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Errorf("%s: %v", where, err)
			return
		}
		o.SetNamespace(ns)
		if err := admin.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
	for file, text := range texts(t, "../../config/samples/monitoring_*.yaml", 4) {
		accepted(file, text)
	}
	found := 0
	for _, pages := range []string{"../../docs/*.md", "../../docs/*/*.md", "../../README.md"} {
		for page, text := range texts(t, pages, 1) {
			for _, o := range objects(text) {
				found++
				accepted(page, o)
			}
		}
	}
	if found < 7 {
		t.Errorf("found %d objects in the documents, want more: has the format of the examples changed?", found)
	}
}

func texts(t *testing.T, pattern string, least int) map[string]string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < least {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[file] = string(b)
	}
	return all
}

// computed is a value that a shell inserts into an object; in the documents a hash.
var computed = regexp.MustCompile(`\$\(.*\)`)

// objects returns the objects of Sonde's kinds in a page's indented blocks.
func objects(page string) []string {
	const indent = "    "
	var all []string
	inside := false
	for line := range strings.Lines(computed.ReplaceAllString(page, strings.Repeat("a", 64))) {
		code, indented := strings.CutPrefix(line, indent)
		switch {
		case strings.HasPrefix(code, "apiVersion: monitoring.openshift.tpg/"):
			inside = true
			all = append(all, "")
		case !indented || code == "EOF\n":
			inside = false
		}
		if inside {
			all[len(all)-1] += code
		}
	}
	return all
}
