// Package layout checks the layers of the tree, whose imports run one way, and the links of the documentation.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sonde-operator/sonde"

// layer is a part of the tree, named by the prefix of its folders; the longest prefix wins.
type layer string

const (
	mainPackage layer = "."
	commands    layer = "cmd"
	controllers layer = "controllers"
	webhooks    layer = "webhooks"
	wiring      layer = "internal/operator/wiring"
	operator    layer = "internal/operator"
	plugin      layer = "internal/cli"
	agents      layer = "agents"
	shared      layer = "internal"
	version     layer = "internal/version"
	restriction layer = "internal/restriction"
	wire        layer = "internal/wire"
	api         layer = "api"
	typedClient layer = "client"
	tests       layer = "test"
)

// below lists the layers that a layer may import, besides itself.
var below = map[layer][]layer{
	mainPackage: {wiring, controllers, webhooks, operator, shared, version, wire, api},
	commands:    {plugin, agents, shared, version, wire, api},
	wiring:      {controllers, webhooks, operator, shared, version, wire, api},
	controllers: {operator, shared, version, wire, api},
	webhooks:    {operator, shared, version, wire, api},
	operator:    {shared, version, restriction, wire, api},
	plugin:      {shared, version, wire, api},
	agents:      {version, restriction, wire},
	shared:      {version, wire, api},
	version:     {},
	restriction: {},
	wire:        {api},
	api:         {},
	typedClient: {api},
}

// apart lists layers whose families, one folder each, must not import each other. The value is the folder that they may
// share.
var apart = map[layer]string{controllers: "", webhooks: "webhooks/admission"}

// imports maps each package of the module to the packages of the module that it imports. Both are paths relative to the
// module.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		from := folder(p.ImportPath)
		found[from] = []string{}
		for _, to := range p.Imports {
			if to == module || strings.HasPrefix(to, module+"/") {
				found[from] = append(found[from], folder(to))
			}
		}
	}
}

func folder(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func layerOf(folder string) layer {
	for _, l := range []layer{wiring, operator, plugin, wire, version, restriction, shared, commands, controllers, webhooks, agents, api, typedClient, tests} {
		if folder == string(l) || strings.HasPrefix(folder, string(l)+"/") {
			return l
		}
	}
	return mainPackage
}

func TestImportsRunOneWay(t *testing.T) {
	for from, all := range imports(t) {
		for _, to := range all {
			a, b := layerOf(from), layerOf(to)
			if a == tests {
				continue
			}
			if a != b && !slices.Contains(below[a], b) {
				t.Errorf("%s imports %s: %s may import %v", from, to, a, below[a])
			}
			if common, ok := apart[a]; ok && a == b && family(from) != family(to) && to != common {
				t.Errorf("%s imports %s: families must not import each other", from, to)
			}
		}
	}
}

// family returns the folder below a layer that holds a package: controllers/capture, agents/node.
func family(folder string) string {
	l := layerOf(folder)
	rest, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(folder, string(l)), "/"), "/")
	return string(l) + "/" + rest
}

// TestNoCircles checks whole folders. The compiler refuses import cycles between packages, but not between the folders
// above them.
func TestNoCircles(t *testing.T) {
	arrows := map[string]map[string]bool{}
	for from, all := range imports(t) {
		for _, to := range all {
			if a, b := family(from), family(to); a != b && layerOf(from) != tests {
				if arrows[a] == nil {
					arrows[a] = map[string]bool{}
				}
				arrows[a][b] = true
			}
		}
	}
	for _, from := range slices.Sorted(maps.Keys(arrows)) {
		if path := circle(arrows, from, from, map[string]bool{}); path != nil {
			t.Errorf("import cycle between folders: %s", strings.Join(append(path, from), " <- "))
		}
	}
}

// circle returns the folders on a path from at to goal, the last one first, or nil.
func circle(arrows map[string]map[string]bool, at, goal string, visited map[string]bool) []string {
	for to := range arrows[at] {
		if to == goal {
			return []string{at}
		}
		if !visited[to] {
			visited[to] = true
			if path := circle(arrows, to, goal, visited); path != nil {
				return append(path, at)
			}
		}
	}
	return nil
}
