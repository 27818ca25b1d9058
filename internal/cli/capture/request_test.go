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
		"its own namespace is omitted": {
			request: Request{Namespace: "shop", TargetNamespace: "shop", Target: web},
			want:    "metadata: {generateName: web-, namespace: shop}\nspec: {targetRef: {kind: Deployment, name: web}}\n",
		},
		"everything": {
			request: Request{
				Namespace: "packet-capture", Name: "mine", Target: web, TargetNamespace: "shop", Duration: "30", RetainFor: "10m",
				Filter: "tcp port 80", SnapLength: 128, MaxBytes: "100Mi", MaxPackets: 1000, Interfaces: []string{"eth0", "lo"},
				NoFollow: true, JobID: "qwer", Engine: "bpf", Processes: true,
			},
			want: `
metadata: {name: mine, namespace: packet-capture}
spec:
  duration: "30"
  engine: bpf
  filter: tcp port 80
  followPods: false
  interfaces: [eth0, lo]
  jobId: qwer
  maxBytes: 104857600
  maxPackets: 1000
  processes: true
  retainFor: 10m
  snapLength: 128
  targetNamespace: shop
  targetRef: {kind: Deployment, name: web}
`,
		},
		"a ring of files": {
			request: Request{Namespace: "shop", Target: web, Rotate: "100M:5"},
			want: `
metadata: {generateName: web-, namespace: shop}
spec: {maxBytes: 500000000, rotate: {maxBytes: 100000000, files: 5}, targetRef: {kind: Deployment, name: web}}
`,
		},
		"a ring and its bound": {
			request: Request{Namespace: "shop", Target: web, Rotate: "1Mi:2", MaxBytes: "1Gi"},
			want: `
metadata: {generateName: web-, namespace: shop}
spec: {maxBytes: 1073741824, rotate: {maxBytes: 1048576, files: 2}, targetRef: {kind: Deployment, name: web}}
`,
		},
		"a long one keeps the files of a Pod that ends early": {
			request: Request{Namespace: "shop", Target: web, Duration: "2h30m"},
			want:    "metadata: {generateName: web-, namespace: shop}\nspec: {duration: 2h30m, retainFor: 12600s, targetRef: {kind: Deployment, name: web}}\n",
		},
		"a long one with a retention of its own": {
			request: Request{Namespace: "shop", Target: web, Duration: "4h", RetainFor: "30m"},
			want:    "metadata: {generateName: web-, namespace: shop}\nspec: {duration: 4h, retainFor: 30m, targetRef: {kind: Deployment, name: web}}\n",
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

func TestBuildTrace(t *testing.T) {
	for name, tc := range map[string]struct {
		request Request
		want    string
	}{
		"as little as possible": {
			request: Request{Namespace: "shop", Target: web},
			want:    "metadata: {generateName: web-, namespace: shop}\nspec: {retainFor: 18000s, targetRef: {kind: Deployment, name: web}}\n",
		},
		"everything": {
			request: Request{
				Namespace: "tracing", Name: "mine", Target: web, TargetNamespace: "shop", Duration: "30", RetainFor: "10m",
				Events: []string{"process", " io"}, MinLatency: "500us", MaxBytes: "100Mi", MaxEvents: 1000, Format: "flap",
				NoFollow: true, JobID: "qwer", Containers: []string{"web", "istio-proxy"}, Command: "/usr/sbin/nginx", Children: true,
			},
			want: `
metadata: {name: mine, namespace: tracing}
spec:
  children: true
  command: /usr/sbin/nginx
  containers: [web, istio-proxy]
  duration: "30"
  events: [process, io]
  followPods: false
  format: flap
  jobId: qwer
  maxBytes: 104857600
  maxEvents: 1000
  minLatency: 500us
  retainFor: 10m
  targetNamespace: shop
  targetRef: {kind: Deployment, name: web}
`,
		},
		"a gate": {
			request: Request{Namespace: "shop", Name: "mine", Target: web, Gate: true},
			want:    "metadata: {name: mine, namespace: shop}\nspec: {gate: {enabled: true}, retainFor: 18000s, targetRef: {kind: Deployment, name: web}}\n",
		},
		"a gate of its own": {
			request: Request{Namespace: "shop", Name: "mine", Target: web, Gate: true, GateTimeout: "5m", GateOnTimeout: "fail"},
			want:    "metadata: {name: mine, namespace: shop}\nspec: {gate: {enabled: true, timeout: 5m, onTimeout: Fail}, retainFor: 18000s, targetRef: {kind: Deployment, name: web}}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.request.BuildTrace()
			if err != nil {
				t.Fatal(err)
			}
			var want v1alpha1.Trace
			if err := yaml.UnmarshalStrict([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for name, tc := range map[string]struct {
		request Request
		want    string
	}{
		"duration":         {Request{Target: web, Duration: "half an hour"}, "--for: duration"},
		"bytes":            {Request{Target: web, MaxBytes: "lots"}, `--max-bytes "lots": write a number of bytes, like 100Mi`},
		"latency":          {Request{Target: web, MinLatency: "10"}, `--min-latency "10": write a number with ns, us, ms or s`},
		"negative latency": {Request{Target: web, MinLatency: "-1ms"}, `--min-latency "-1ms": write a number`},
		"children of all":  {Request{Target: web, Children: true}, "--children needs --command"},
		"no gate to time":  {Request{Target: web, GateTimeout: "5m"}, "need --gate"},
		"no gate to fail":  {Request{Target: web, GateOnTimeout: "Fail"}, "need --gate"},
		"gate's time":      {Request{Target: web, Gate: true, GateTimeout: "soon"}, "--gate-timeout: duration"},
		"gate's end":       {Request{Target: web, Gate: true, GateOnTimeout: "Ignore"}, `--gate-on-timeout "Ignore": write Proceed or Fail`},
		"useless gate":     {Request{Target: web, Gate: true, NoFollow: true}, "--no-follow does not trace new Pods"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tc.request.BuildTrace(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
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
		"ring, no count":  {Request{Target: web, Rotate: "100M"}, `--rotate "100M": write the size of a file and how many are kept, 2 to 16, like 100Mi:5`},
		"ring, no size":   {Request{Target: web, Rotate: ":5"}, "like 100Mi:5"},
		"ring of one":     {Request{Target: web, Rotate: "100M:1"}, "2 to 16"},
		"ring of many":    {Request{Target: web, Rotate: "100M:17"}, "2 to 16"},
		"ring of nothing": {Request{Target: web, Rotate: "0:5"}, "like 100Mi:5"},
		"ring of halves":  {Request{Target: web, Rotate: "100M:2.5"}, "like 100Mi:5"},
		"ring of rings":   {Request{Target: web, Rotate: "1M:2:3"}, "like 100Mi:5"},
		"ring, enormous":  {Request{Target: web, Rotate: "8Ei:16"}, "like 100Mi:5"},
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
