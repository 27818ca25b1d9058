package extcap

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSentences(t *testing.T) {
	var b strings.Builder
	err := errors.Join(
		WriteInterfaces(&b, "1.2", []Interface{{}, {Deployment, "web", "shop"}, {Running, "web-x7k2p", "shop"}}),
		WriteLinkTypes(&b),
		WriteOptions(&b, []Option{
			{Call: "--target", Display: "Target", Type: "string", Required: true},
			{Call: "--context", Display: "Context", Type: "selector", Tooltip: "a {b}\nc", Default: "two", Values: []string{"one", "two"}},
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := `extcap {version=1.2}{help=https://github.com/sonde-operator/sonde/blob/main/docs/guide/live-wireshark.md}
interface {value=sonde}{display=Kubernetes workload, by Sonde}
interface {value=sonde-deploy-web}{display=Deployment shop/web, by Sonde}
interface {value=sonde-pcap-web-x7k2p}{display=running PacketCapture shop/web-x7k2p, by Sonde}
dlt {number=1}{name=EN10MB}{display=Ethernet}
arg {number=0}{call=--target}{display=Target}{type=string}{required=true}
arg {number=1}{call=--context}{display=Context}{tooltip=a  b  c}{type=selector}{default=two}
value {arg=1}{value=one}{display=one}{default=false}
value {arg=1}{value=two}{display=two}{default=true}
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("sentences (-want +got):\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	for value, want := range map[string]Interface{
		"sonde":                {},
		"sonde-deploy-web":     {Kind: Deployment, Name: "web"},
		"sonde-sts-my-db.v2":   {Kind: StatefulSet, Name: "my-db.v2"},
		"sonde-pcap-web-x7k2p": {Kind: Running, Name: "web-x7k2p"},
	} {
		if got, err := Parse(value); got != want || err != nil {
			t.Errorf("Parse(%q) = %+v, %v", value, got, err)
		}
	}
	for _, value := range []string{"", "eth0", "sonde-", "sonde-deploy", "sonde-deploy-", "sonde-pod-web", "sonde-deploy-a/b", "deploy-web", "sonde--web"} {
		if got, err := Parse(value); err == nil || !strings.Contains(err.Error(), "refresh") {
			t.Errorf("Parse(%q) = %+v, %v", value, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("sonde-deploy-web")
	f.Add("sonde-pcap-a-b.c")
	f.Fuzz(func(t *testing.T, value string) {
		if i, err := Parse(value); err == nil && i.Value() != value {
			t.Fatalf("%q is read as %+v", value, i)
		}
	})
}
