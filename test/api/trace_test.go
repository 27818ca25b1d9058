//go:build api

package api

import "strings"

// traceCreations are specs with fields that only a Trace has.
var traceCreations = map[string]creation{
	"all groups":                 {fields: map[string]any{"events": []any{"process", "file", "io", "network", "memory", "signal"}}},
	"all limits":                 {fields: map[string]any{"maxBytes": int64(65536), "maxEvents": int64(1), "minLatency": "1ns"}},
	"slow ones":                  {fields: map[string]any{"minLatency": "500us"}},
	"the slowest":                {fields: map[string]any{"minLatency": "3600s"}},
	"flap":                       {fields: map[string]any{"format": "flap"}},
	"no groups":                  {fields: map[string]any{"events": []any{}}, want: "events in body should have at least 1 items"},
	"an unknown group":           {fields: map[string]any{"events": []any{"all"}}, want: `supported values: "process", "file", "io", "network", "memory", "signal"`},
	"a group twice":              {fields: map[string]any{"events": []any{"io", "io"}}, want: "Duplicate value"},
	"groups in words":            {fields: map[string]any{"events": "io"}, want: "must be of type array"},
	"minLatency in words":        {fields: map[string]any{"minLatency": "long"}, want: `minLatency must be a number with ns, us, ms or s, like "500us"`},
	"minLatency without a unit":  {fields: map[string]any{"minLatency": "5"}, want: "minLatency must be a number with ns, us, ms or s"},
	"minLatency with a fraction": {fields: map[string]any{"minLatency": "1.5ms"}, want: "minLatency must be a number with ns, us, ms or s"},
	"minLatency of none":         {fields: map[string]any{"minLatency": "0ms"}, want: "minLatency must lie between 1ns and 1h; leave it out to record all calls"},
	"minLatency too long":        {fields: map[string]any{"minLatency": "3601s"}, want: "minLatency must lie between 1ns and 1h"},
	"empty minLatency":           {fields: map[string]any{"minLatency": ""}, want: "minLatency must be a number"},
	"unknown format":             {fields: map[string]any{"format": "json"}, want: `supported values: "ndjson", "flap"`},
	"maxEvents zero":             {fields: map[string]any{"maxEvents": int64(0)}, want: "greater than or equal to 1"},
	"some containers":            {fields: map[string]any{"containers": []any{"web", "istio-proxy", "0"}}},
	"a command":                  {fields: map[string]any{"command": "nginx: worker"}},
	"a command's path":           {fields: map[string]any{"command": "/usr/sbin/nginx.d/..x/nginx", "children": true}},
	"the longest command":        {fields: map[string]any{"command": strings.Repeat("é", 127) + "x"}},
	"the deepest command":        {fields: map[string]any{"command": strings.Repeat("/x", 32)}},
	"children of all":            {fields: map[string]any{"children": false}},
	"no containers":              {fields: map[string]any{"containers": []any{}}, want: "containers in body should have at least 1 items"},
	"a container twice":          {fields: map[string]any{"containers": []any{"web", "web"}}, want: "Duplicate value"},
	"a container in words":       {fields: map[string]any{"containers": []any{"web", "the other"}}, want: "containers must be names of containers, like web or istio-proxy"},
	"an empty container":         {fields: map[string]any{"containers": []any{""}}, want: "containers must be names of containers"},
	"a container of 64":          {fields: map[string]any{"containers": []any{strings.Repeat("x", 64)}}, want: "up to 63 of [a-z0-9-]"},
	"too many containers":        {fields: map[string]any{"containers": seventeen()}, want: "must have at most 16 items"},
	"containers as a text":       {fields: map[string]any{"containers": "web"}, want: "must be of type array"},
	"an empty command":           {fields: map[string]any{"command": ""}, want: "command must be a name, like nginx, or a path, like /usr/sbin/nginx"},
	"a command with a zero":      {fields: map[string]any{"command": "ng\x00inx"}, want: "none of them zero"},
	"a command of 256":           {fields: map[string]any{"command": strings.Repeat("x", 256)}, want: "may not be more than 255"},
	"a command of 256 bytes":     {fields: map[string]any{"command": strings.Repeat("é", 128)}, want: "of 1 to 255 bytes"},
	"a command from somewhere":   {fields: map[string]any{"command": "sbin/nginx"}, want: "the whole path of an executable"},
	"a command with a detour":    {fields: map[string]any{"command": "/usr/../sbin/nginx"}, want: "the whole path of an executable"},
	"a command to nowhere":       {fields: map[string]any{"command": "/usr/sbin/"}, want: "the whole path of an executable"},
	"a command too deep":         {fields: map[string]any{"command": strings.Repeat("/x", 33)}, want: "at most 31 directories"},
	"children of no command":     {fields: map[string]any{"children": true}, want: "set command too, or leave children out"},
}

// seventeen returns 17 containers, one more than allowed.
func seventeen() []any {
	names := make([]any, 17)
	for i := range names {
		names[i] = "c" + strings.Repeat("x", i)
	}
	return names
}

var fullTrace = map[string]any{
	"events": []any{"file", "io"}, "minLatency": "1ms", "format": "flap", "maxEvents": int64(5),
	"containers": []any{"web", "log"}, "command": "nginx", "children": true,
}

var traceChanges = map[string]change{
	"groups in another order": {field: "events", value: []any{"io", "file"}},
	"one group more":          {field: "events", value: []any{"file", "io", "process"}, want: "events is immutable"},
	"the default's groups":    {field: "events", want: "events is immutable"},
	"another minLatency":      {field: "minLatency", value: "2ms", want: "minLatency is immutable"},
	"no minLatency":           {field: "minLatency", want: "minLatency is immutable"},
	"the default's format":    {field: "format", want: "format is immutable"},
	"another maxEvents":       {field: "maxEvents", value: int64(6), want: "maxEvents is immutable"},
	"maxEvents removed":       {field: "maxEvents", want: "maxEvents is immutable"},
	"containers reordered":    {field: "containers", value: []any{"log", "web"}},
	"another container":       {field: "containers", value: []any{"web"}, want: "containers is immutable"},
	"all containers":          {field: "containers", want: "containers is immutable"},
	"another command":         {field: "command", value: "sh", want: "command is immutable"},
	"no command":              {field: "command", want: "command is immutable"},
	"no children":             {field: "children", value: false, want: "children is immutable"},
	"children left out":       {field: "children", want: "children is immutable"},
}
