//go:build api

package api

import "strings"

// packetCaptureCreations are specs with fields that only a PacketCapture has.
var packetCaptureCreations = map[string]creation{
	"all limits":                 {fields: map[string]any{"maxBytes": int64(65536), "maxPackets": int64(1), "snapLength": int64(96), "filter": "tcp port 80"}},
	"interfaces":                 {fields: map[string]any{"interfaces": []any{"eth0", "lo"}}},
	"filter too long":            {fields: map[string]any{"filter": strings.Repeat("x", 5000)}, want: "Too long: may not be more than 4096"},
	"snapLength zero":            {fields: map[string]any{"snapLength": int64(0)}, want: "snapLength in body should be greater than or equal to 16"},
	"snapLength too large":       {fields: map[string]any{"snapLength": int64(262145)}, want: "less than or equal to 262144"},
	"maxPackets zero":            {fields: map[string]any{"maxPackets": int64(0)}, want: "greater than or equal to 1"},
	"maxPackets negative":        {fields: map[string]any{"maxPackets": int64(-5)}, want: "greater than or equal to 1"},
	"a ring":                     {fields: map[string]any{"rotate": ring(65536, 2)}},
	"a ring that just fits":      {fields: map[string]any{"maxBytes": int64(16 << 20), "rotate": ring(1<<20, 16)}},
	"a ring above maxBytes":      {fields: map[string]any{"maxBytes": int64(16<<20 - 1), "rotate": ring(1<<20, 16)}, want: "rotate.maxBytes times rotate.files must not be above maxBytes"},
	"a ring above the default":   {fields: map[string]any{"rotate": ring(1<<29+1, 2)}, want: "write smaller or fewer files, or a larger maxBytes"},
	"a ring of very large files": {fields: map[string]any{"rotate": ring(1<<40, 16)}, want: "rotate.maxBytes times rotate.files must not be above maxBytes"},
	"a ring of one file":         {fields: map[string]any{"rotate": ring(65536, 1)}, want: "rotate.files in body should be greater than or equal to 2"},
	"a ring of no files":         {fields: map[string]any{"rotate": map[string]any{"maxBytes": int64(65536)}}, want: "rotate.files: Required value"},
	"a ring of many files":       {fields: map[string]any{"rotate": ring(65536, 17)}, want: "rotate.files in body should be less than or equal to 16"},
	"a ring of tiny files":       {fields: map[string]any{"rotate": ring(65535, 2)}, want: "rotate.maxBytes in body should be greater than or equal to 65536"},
	"a ring of negative files":   {fields: map[string]any{"rotate": ring(-65536, 2)}, want: "rotate.maxBytes in body should be greater than or equal to 65536"},
	"a ring of no size":          {fields: map[string]any{"rotate": map[string]any{"files": int64(2)}}, want: "rotate.maxBytes: Required value"},
	"an empty ring":              {fields: map[string]any{"rotate": map[string]any{}}, want: "Required value"},
	"a ring in words":            {fields: map[string]any{"rotate": "1Mi:5"}, want: "must be of type object"},
	"engine auto":                {fields: map[string]any{"engine": "auto"}},
	"engine bpf":                 {fields: map[string]any{"engine": "bpf"}},
	"engine afpacket":            {fields: map[string]any{"engine": "afpacket"}},
	"processes":                  {fields: map[string]any{"processes": true}},
	"processes by engine bpf":    {fields: map[string]any{"processes": true, "engine": "bpf"}},
	"no processes by afpacket":   {fields: map[string]any{"processes": false, "engine": "afpacket"}},
	"processes by afpacket":      {fields: map[string]any{"processes": true, "engine": "afpacket"}, want: "engine afpacket cannot name processes"},
	"an engine that is none":     {fields: map[string]any{"engine": "xdp"}, want: `spec.engine: Unsupported value: "xdp"`},
	"an engine without a name":   {fields: map[string]any{"engine": ""}, want: `spec.engine: Unsupported value: ""`},
	"empty list of interfaces":   {fields: map[string]any{"interfaces": []any{}}, want: "interfaces in body should have at least 1 items"},
	"interface twice":            {fields: map[string]any{"interfaces": []any{"eth0", "eth0"}}, want: "Duplicate value"},
	"interface with a slash":     {fields: map[string]any{"interfaces": []any{"../eth0"}}, want: "interfaces[0]"},
	"interface with an escape":   {fields: map[string]any{"interfaces": []any{"a\x1b[2J"}}, want: "interfaces[0]"},
	"interface name too long":    {fields: map[string]any{"interfaces": []any{"an-interface-name"}}, want: "may not be more than 15"},
	"too many interfaces":        {fields: map[string]any{"interfaces": []any{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f", "g"}}, want: "must have at most 16 items"},
}

// ring returns a value for spec.rotate.
func ring(maxBytes, files int64) map[string]any {
	return map[string]any{"maxBytes": maxBytes, "files": files}
}

var fullPacketCapture = map[string]any{
	"filter": "tcp", "snapLength": int64(96), "interfaces": []any{"eth0"}, "maxPackets": int64(5), "rotate": ring(65536, 4), "engine": "bpf",
	"processes": true,
}

var packetCaptureChanges = map[string]change{
	"another filter":             {field: "filter", value: "udp", want: "filter is immutable"},
	"filter removed":             {field: "filter", want: "filter is immutable"},
	"another snapLength":         {field: "snapLength", value: int64(128), want: "snapLength is immutable"},
	"another list of interfaces": {field: "interfaces", value: []any{"lo"}, want: "interfaces is immutable"},
	"another maxPackets":         {field: "maxPackets", value: int64(6), want: "maxPackets is immutable"},
	"maxPackets removed":         {field: "maxPackets", want: "maxPackets is immutable"},
	"larger files of the ring":   {field: "rotate", value: ring(65537, 4), want: "rotate is immutable"},
	"more files in the ring":     {field: "rotate", value: ring(65536, 5), want: "rotate is immutable"},
	"another engine":             {field: "engine", value: "auto", want: "engine is immutable"},
	"processes removed":          {field: "processes", want: "processes is immutable"},
	"processes false":            {field: "processes", value: false, want: "processes is immutable"},
	"engine removed":             {field: "engine", want: "engine is immutable"},
	"no ring any more":           {field: "rotate", want: "rotate is immutable"},
}
