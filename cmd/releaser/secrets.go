package main

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
)

// minSecret is the length of the shortest values that are hidden, in bytes. Shorter ones would make messages unreadable, and are easy to
// guess.
const minSecret = 4

// secrets are the values of this process that messages and logs must not show: charts and the API server quote them in errors.
var secrets hidden

// hidden replaces values in texts.
type hidden struct {
	replacer atomic.Pointer[strings.Replacer]
}

// set hides all values below v.
func (h *hidden) set(v any) {
	var all []string
	walk(v, func(value string) {
		if len(value) >= minSecret {
			all = append(all, value, base64.StdEncoding.EncodeToString([]byte(value)))
			if quoted := strings.Trim(fmt.Sprintf("%q", value), `"`); quoted != value {
				all = append(all, quoted)
			}
		}
	})
	// The longest first: one value may be a part of another.
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, value := range slices.Compact(all) {
		pairs = append(pairs, value, "***")
	}
	h.replacer.Store(strings.NewReplacer(pairs...))
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
