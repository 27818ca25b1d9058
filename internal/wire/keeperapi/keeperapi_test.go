package keeperapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

func TestCheckVersion(t *testing.T) {
	tests := map[string]struct {
		value   string
		wantErr string
	}{
		"this version":     {value: "1"},
		"none":             {value: "", wantErr: "not a part of Sonde"},
		"no number":        {value: "one", wantErr: "not a part of Sonde"},
		"newer":            {value: "2", wantErr: "upgrade the older side"},
		"zero":             {value: "0", wantErr: "upgrade the older side"},
		"long and hostile": {value: strings.Repeat("x", 1<<20), wantErr: "not a part of Sonde"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			h.Set(keeperapi.Header, tc.value)
			err := keeperapi.CheckVersion(h)
			switch {
			case tc.wantErr == "" && err != nil:
				t.Fatalf("CheckVersion: %v", err)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Fatalf("CheckVersion: %v, want an error with %q", err, tc.wantErr)
			case err != nil && len(err.Error()) > 200:
				t.Fatalf("CheckVersion: the error has %d bytes of the header", len(err.Error()))
			}
		})
	}
}
