package handover

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

var samples = map[string]message{
	"listeners": {kind: kindListeners},
	"ping":      {kind: kindPing, id: 1 << 31},
	"pong":      {kind: kindPong, id: 7},
	"result":    {kind: kindResult, id: 1, value: 111},
	"steer":     {kind: kindSteer, id: 2, port: 8080, value: 1},
	"unsteer":   {kind: kindSteer, id: 3, port: 65535},
	"listens":   {kind: kindListens, id: 6, port: 8080},
	"dial":      {kind: kindDial, id: 4, port: 8080, addr: netip.MustParseAddr("10.0.0.1")},
	"dial IPv6": {kind: kindDial, id: 5, port: 8080, scope: 2, addr: netip.MustParseAddr("fe80::1")},
}

func TestMessage(t *testing.T) {
	for name, m := range samples {
		t.Run(name, func(t *testing.T) {
			b := m.appendTo(nil)
			if got, err := parse(b); err != nil || got != m {
				t.Errorf("parsed %+v, %v; want %+v", got, err, m)
			}
			for _, bad := range [][]byte{nil, b[:messageLen-1], append(slices.Clone(b), 0)} {
				if _, err := parse(bad); !errors.Is(err, errMessage) {
					t.Errorf("%d bytes: %v", len(bad), err)
				}
			}
		})
	}
}

func TestInvalidMessage(t *testing.T) {
	cases := map[string]struct {
		of   string
		edit func([]byte)
	}{
		"version":           {of: "ping", edit: func(b []byte) { b[0] = 2 }},
		"kind 0":            {of: "ping", edit: func(b []byte) { b[1] = 0 }},
		"kind 8":            {of: "ping", edit: func(b []byte) { b[1] = 8 }},
		"ping with a port":  {of: "ping", edit: func(b []byte) { b[3] = 1 }},
		"steer 2":           {of: "steer", edit: func(b []byte) { b[11] = 2 }},
		"steer port 0":      {of: "steer", edit: func(b []byte) { b[2], b[3] = 0, 0 }},
		"steer an address":  {of: "steer", edit: func(b []byte) { b[31] = 1 }},
		"listens, port 0":   {of: "listens", edit: func(b []byte) { b[2], b[3] = 0, 0 }},
		"dial port 0":       {of: "dial", edit: func(b []byte) { b[2], b[3] = 0, 0 }},
		"dial with a value": {of: "dial", edit: func(b []byte) { b[11] = 1 }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := samples[tc.of]
			b := m.appendTo(nil)
			tc.edit(b)
			if got, err := parse(b); !errors.Is(err, errMessage) {
				t.Errorf("parsed %+v, %v", got, err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range samples {
		f.Add(m.appendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err == nil && !slices.Equal(m.appendTo(nil), b) {
			t.Errorf("%x parses to %+v, which is %x", b, m, m.appendTo(nil))
		}
	})
}

func TestOutcome(t *testing.T) {
	long := Outcome{Reason: ReasonFailed, Message: strings.Repeat("\x01\xff", maxOutcome)}
	for name, o := range map[string]Outcome{"short": {Reason: ReasonTargetGone, Message: "x"}, "long": long} {
		b, err := o.Marshal()
		if err != nil || len(b) > maxOutcome {
			t.Fatalf("%s: %d bytes, %v", name, len(b), err)
		}
		got, err := ParseOutcome(b)
		if err != nil || got.Reason != o.Reason || got.Message == "" || len(got.Message) > maxMessage {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "{}", `{"reason":"Bored"}`, `{"reason":"Failed","message":"` + strings.Repeat("x", maxOutcome) + `"}`} {
		if got, err := ParseOutcome([]byte(bad)); err == nil {
			t.Errorf("%.20q: %+v", bad, got)
		}
	}
}

func FuzzParseOutcome(f *testing.F) {
	f.Add([]byte(`{"reason":"Failed","message":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ParseOutcome(b)
		if err == nil && (!slices.Contains(reasons, o.Reason) || len(o.Message) > maxMessage) {
			t.Errorf("outcome %+v", o)
		}
	})
}
