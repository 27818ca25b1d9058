package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// minSecret is the length of the shortest values that are hidden, in bytes. Shorter ones would make messages unreadable, and are easy to
// guess. A single line of a value must have minLine bytes: short lines are rarely secret.
const (
	minSecret = 4
	minLine   = 8
)

// secrets are the values of this process that messages and logs must not show: charts and the API server quote them in errors.
var secrets hidden

// hidden replaces values in texts.
type hidden struct {
	replacer atomic.Pointer[strings.Replacer]

	mu  sync.Mutex
	all map[string]bool
}

// add hides all values below v from now on.
func (h *hidden) add(v any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[string]bool{}
	}
	walk(v, func(value string) {
		if len(value) < minSecret {
			return
		}
		for _, part := range parts(value) {
			for _, form := range forms(part) {
				h.all[form] = true
			}
		}
	})
	var pairs []string
	// The longest first: one value may be a part of another.
	for _, value := range slices.SortedFunc(maps.Keys(h.all), func(a, b string) int { return len(b) - len(a) }) {
		pairs = append(pairs, value, "***")
	}
	h.replacer.Store(strings.NewReplacer(pairs...))
}

// parts returns a value and its lines: templates trim and indent them, and the embedded chart doubles each $ for the OpenTelemetry Collector. A
// line such as "resources:" is a key of YAML, and no secret. To hide it would cut the paths of fields out of the API server's messages.
func parts(value string) []string {
	all := []string{value}
	if trimmed := strings.TrimSpace(value); len(trimmed) >= minSecret {
		all = append(all, trimmed)
	}
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasSuffix(line, ":") {
			all = append(all, line)
		}
	}
	for _, part := range all {
		if strings.Contains(part, "$") {
			all = append(all, strings.ReplaceAll(part, "$", "$$"))
		}
	}
	return all
}

// forms returns the texts in which messages quote a value: as it is, in base64, and between the quotes of Go, of JSON with and without
// escapes for HTML, and of the validator of schemas, which escapes a single quote and no double one.
func forms(value string) []string {
	quoted := fmt.Sprintf("%q", value)
	quoted = quoted[1 : len(quoted)-1]
	all := []string{value, base64.StdEncoding.EncodeToString([]byte(value)), quoted, strings.NewReplacer(`\"`, `"`, `'`, `\'`).Replace(quoted)}
	for _, html := range []bool{false, true} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		if e.Encode(value) == nil {
			all = append(all, b.String()[1:b.Len()-2]) // without quotes and the line's end
		}
	}
	return all
}

func walk(v any, visit func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			walk(item, visit)
		}
	case []any:
		for _, item := range v {
			walk(item, visit)
		}
	case nil, bool:
	default:
		visit(fmt.Sprint(v))
	}
}

func (h *hidden) hide(text string) string {
	if r := h.replacer.Load(); r != nil {
		return r.Replace(text)
	}
	return text
}

// hideAttr is ReplaceAttr of a log handler.
func (h *hidden) hideAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(h.hide(a.Value.String()))
	case slog.KindAny:
		if h.replacer.Load() != nil {
			a.Value = slog.StringValue(h.hide(fmt.Sprint(a.Value.Any())))
		}
	default:
	}
	return a
}
