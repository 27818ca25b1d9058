package agentjob_test

import (
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

func parse(value string) (*captureconfig.Floor, string, error) {
	f := agentjob.DefaultDiskFloor
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Var(&f, agentjob.DiskFloorFlag, "")
	err := fs.Parse([]string{"--" + agentjob.DiskFloorFlag + "=" + value})
	return f.Config(), f.String(), err
}

func TestSet(t *testing.T) {
	cases := map[string]struct {
		want     *captureconfig.Floor
		wantText string
	}{
		"12%":   {&captureconfig.Floor{Percent: 12}, "12%"},
		"90%":   {&captureconfig.Floor{Percent: 90}, "90%"},
		"0%":    {nil, "0"},
		"0":     {nil, "0"},
		"10Gi":  {&captureconfig.Floor{Bytes: 10 << 30}, "10Gi"},
		"65536": {&captureconfig.Floor{Bytes: 65536}, "64Ki"},
		"1G":    {&captureconfig.Floor{Bytes: 1e9}, "1000000000"},
	}
	for value, tc := range cases {
		t.Run(value, func(t *testing.T) {
			got, text, err := parse(value)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || text != tc.wantText {
				t.Errorf("%s, want %s (-want +got):\n%s", text, tc.wantText, diff)
			}
		})
	}
}

func TestSetRefuses(t *testing.T) {
	for _, value := range []string{"", "91%", "-1%", "12.5%", "a%", "%", "-1", "-1Gi", "much", "1Ei1", "9999999999999999999999"} {
		t.Run(value, func(t *testing.T) {
			if got, _, err := parse(value); err == nil || !strings.Contains(err.Error(), "like 10Gi") {
				t.Errorf("%+v, error %v", got, err)
			}
		})
	}
}

func TestDefault(t *testing.T) {
	f := agentjob.DefaultDiskFloor
	const evicts = 15 // percent: the kubelet's default for imagefs.available, which is larger than that for nodefs.available
	if c := f.Config(); f.String() != "17%" || c.Percent <= evicts {
		t.Errorf("default %s", f.String())
	}
}
