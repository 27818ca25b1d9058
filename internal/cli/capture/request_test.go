package capture

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

var web = v1alpha1.TargetReference{Kind: v1alpha1.TargetDeployment, Name: "web"}

func TestBuild(t *testing.T) {
	tests := map[string]struct {
		request Request
		want    string
	}{
		"as little as possible": {
			request: Request{Namespace: "shop", Target: web},
			want:    "metadata: {generateName: web-, namespace: shop}\nspec: {targetRef: {kind: Deployment, name: web}}\n",
		},
		"its own namespace needs no word": {
			request: Request{Namespace: "shop", TargetNamespace: "shop", Target: web},
			want:    "metadata: {generateName: web-, namespace: shop}\nspec: {targetRef: {kind: Deployment, name: web}}\n",
		},
		"everything": {
			request: Request{
				Namespace: "packet-capture", Name: "mine", Target: web, TargetNamespace: "shop", Duration: "30", RetainFor: "10m",
				Filter: "tcp port 80", SnapLength: 128, MaxBytes: "100Mi", MaxPackets: 1000, Interfaces: []string{"eth0", "lo"},
				NoFollow: true, JobID: "qwer",
			},
			want: `
metadata: {name: mine, namespace: packet-capture}
spec:
  duration: "30"
  filter: tcp port 80
  followPods: false
  interfaces: [eth0, lo]
  jobId: qwer
  maxBytes: 104857600
  maxPackets: 1000
  retainFor: 10m
  snapLength: 128
  targetNamespace: shop
  targetRef: {kind: Deployment, name: web}
`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tc.request.Build()
			if err != nil {
				t.Fatal(err)
			}
			var want v1alpha1.PacketCapture
			if err := yaml.UnmarshalStrict([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	tests := map[string]struct {
		request Request
		want    string
	}{
		"duration":        {Request{Target: web, Duration: "half an hour"}, "--for: duration"},
		"retention":       {Request{Target: web, RetainFor: "1d"}, "--retain-for: duration"},
		"bytes":           {Request{Target: web, MaxBytes: "lots"}, `--max-bytes "lots": write a number of bytes, like 100Mi`},
		"no bytes":        {Request{Target: web, MaxBytes: "0"}, "above zero"},
		"negative bytes":  {Request{Target: web, MaxBytes: "-1Mi"}, "above zero"},
		"half a byte":     {Request{Target: web, MaxBytes: "500m"}, "whole number"},
		"too large a sum": {Request{Target: web, MaxBytes: "99999999999999999999"}, "whole number"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := tc.request.Build(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
