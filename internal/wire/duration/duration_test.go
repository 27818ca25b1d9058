package duration_test

import (
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/duration"
)

func TestParse(t *testing.T) {
	cases := map[string]struct {
		want    time.Duration
		wantErr bool
	}{
		"30":             {want: 30 * time.Second},
		"90s":            {want: 90 * time.Second},
		"5m":             {want: 5 * time.Minute},
		"1h30m":          {want: 90 * time.Minute},
		"0":              {want: 0},
		"":               {wantErr: true},
		"-5s":            {wantErr: true},
		"5 m":            {wantErr: true},
		"1.5h":           {wantErr: true},
		"10ms":           {wantErr: true},
		"forty":          {wantErr: true},
		"h":              {wantErr: true},
		"1d":             {wantErr: true},
		"99999999999999": {wantErr: true},
	}
	for in, tc := range cases {
		t.Run(in, func(t *testing.T) {
			got, err := duration.Parse(in)
			if (err != nil) != tc.wantErr || got != tc.want {
				t.Errorf("Parse(%q) = %v, %v; want %v, error %t", in, got, err, tc.want, tc.wantErr)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("1h30m")
	f.Add("30")
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := duration.Parse(s); err == nil && d < 0 {
			t.Errorf("Parse(%q) = %v", s, d)
		}
	})
}
