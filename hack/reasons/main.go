// Command reasons prints the table of docs/reasons.md: the reasons of all kinds, from the comments of their constants. A reason
// without a comment is that of a condition that is well.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
)

// source is a file with constants, and the kinds that have them.
type source struct{ file, kinds string }

var sources = []source{
	{"api/v1alpha1/status_types.go", "PacketCapture, Trace; those of the target and of rights also InterceptRequest and FluentPVC"},
	{"api/v1alpha1/interceptrequest_types.go", "InterceptRequest"},
	{"api/v1alpha1/fluentpvc_types.go", "FluentPVC"},
	{"api/v1alpha1/fluentpvcbinding_types.go", "FluentPVCBinding"},
	{"api/v1alpha1/collector_types.go", "Collector"},
	{"internal/wire/release/release.go", "Collector, from a report of its Job"},
}

type reason struct{ name, meaning string }

func main() {
	var out bytes.Buffer
	for _, s := range sources {
		reasons, err := read(s.file)
		if err != nil {
			fmt.Fprintln(os.Stderr, "reasons:", err)
			os.Exit(1)
		}
		fmt.Fprintf(&out, "### %s\n\n| reason | meaning |\n|---|---|\n", s.kinds)
		for _, r := range reasons {
			fmt.Fprintf(&out, "| %s | %s |\n", r.name, r.meaning)
		}
		out.WriteString("\n")
	}
	_, _ = os.Stdout.Write(bytes.TrimSpace(out.Bytes()))
	fmt.Println()
}

// read returns the constants Reason... of a file that have a meaning, in the order of their values.
func read(file string) ([]reason, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var found []reason
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if r, ok := reasonOf(v); ok {
				found = append(found, r)
			}
		}
		return true
	})
	if len(found) == 0 {
		return nil, errors.New(file + " has no reasons")
	}
	slices.SortFunc(found, func(a, b reason) int { return cmp.Compare(a.name, b.name) })
	return found, nil
}

func reasonOf(v *ast.ValueSpec) (reason, bool) {
	if len(v.Names) != 1 || len(v.Values) != 1 || !strings.HasPrefix(v.Names[0].Name, "Reason") {
		return reason{}, false
	}
	value, ok := v.Values[0].(*ast.BasicLit)
	if !ok || value.Kind != token.STRING {
		return reason{}, false
	}
	name, err := strconv.Unquote(value.Value)
	meaning := strings.TrimSpace(v.Comment.Text())
	return reason{name, meaning}, err == nil && meaning != ""
}
