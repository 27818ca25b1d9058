package main

import "testing"

func TestSize(t *testing.T) {
	const form = "write a whole number of Mi or Gi: 512Mi, 2Gi"
	const bounds = "a node's disk has 256Mi to 64Gi"
	for text, tc := range map[string]struct {
		want    size
		shown   string
		wantErr string
	}{
		"2Gi":                    {want: 2 * gibibyte, shown: "2Gi"},
		"2048Mi":                 {want: 2 * gibibyte, shown: "2Gi"},
		"1500Mi":                 {want: 1500 * mebibyte, shown: "1500Mi"},
		"256Mi":                  {want: minNodeDisk, shown: "256Mi"},
		"64Gi":                   {want: maxNodeDisk, shown: "64Gi"},
		"":                       {wantErr: form},
		"Gi":                     {wantErr: form},
		"2":                      {wantErr: form},
		"2G":                     {wantErr: form},
		"1.5Gi":                  {wantErr: form},
		"-2Gi":                   {wantErr: form},
		"99999999999999999999Gi": {wantErr: form},
		"0Gi":                    {wantErr: bounds},
		"255Mi":                  {wantErr: bounds},
		"65Gi":                   {wantErr: bounds},
	} {
		t.Run(text, func(t *testing.T) {
			var got size
			err := got.Set(text)
			checkErr(t, err, tc.wantErr)
			if err == nil && (got != tc.want || got.String() != tc.shown) {
				t.Errorf("got %d, shown as %s, want %d, %s", got, got.String(), tc.want, tc.shown)
			}
		})
	}
}
