package keeperapi

import (
	"net/url"
	"strings"
	"testing"
)

func TestLiveQuery(t *testing.T) {
	for text, want := range map[string]LiveQuery{
		"from=0":                 {},
		"from=7&newest=1":        {From: 7, Newest: true},
		"from=0&ring=0":          {Ring: true},
		"from=7&newest=1&ring=9": {From: 7, Newest: true, Ring: true, Passed: 9},
	} {
		v, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseLiveQuery(v); got != want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
		if got := want.Values().Encode(); got != text {
			t.Errorf("%+v is written as %s, want %s", want, got, text)
		}
	}
	if got, err := ParseLiveQuery(url.Values{}); got != (LiveQuery{}) || err != nil {
		t.Errorf("nothing: %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"from=-1": "the number of the first byte", "from=9223372036854775808": "the number of the first byte",
		"ring=": "the number of packets", "ring=-1": "the number of packets", "from=1&ring=x": "the number of packets",
	} {
		v, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseLiveQuery(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one with %q", text, err, want)
		}
	}
}
