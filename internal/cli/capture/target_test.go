package capture

import (
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

func TestParseTarget(t *testing.T) {
	tests := map[string]struct {
		want    v1alpha1.TargetReference
		wantErr string
	}{
		"web":                            {want: v1alpha1.TargetReference{Kind: "Deployment", Name: "web"}},
		"deploy/web":                     {want: v1alpha1.TargetReference{Kind: "Deployment", Name: "web"}},
		"deployment/web":                 {want: v1alpha1.TargetReference{Kind: "Deployment", Name: "web"}},
		"deployment.apps/web":            {want: v1alpha1.TargetReference{Kind: "Deployment", Name: "web"}},
		"Deployment/web":                 {want: v1alpha1.TargetReference{Kind: "Deployment", Name: "web"}},
		"sts/db":                         {want: v1alpha1.TargetReference{Kind: "StatefulSet", Name: "db"}},
		"statefulset.apps/db":            {want: v1alpha1.TargetReference{Kind: "StatefulSet", Name: "db"}},
		"ds/agent":                       {want: v1alpha1.TargetReference{Kind: "DaemonSet", Name: "agent"}},
		"daemonset/agent":                {want: v1alpha1.TargetReference{Kind: "DaemonSet", Name: "agent"}},
		"po/web-0":                       {want: v1alpha1.TargetReference{Kind: "Pod", Name: "web-0"}},
		"pod/web-0.a":                    {want: v1alpha1.TargetReference{Kind: "Pod", Name: "web-0.a"}},
		"job/x":                          {wantErr: `"job" is no kind of workload: write deploy/NAME`},
		"/x":                             {wantErr: `"" is no kind of workload`},
		"deploy/":                        {wantErr: `"" is not a valid name of a Deployment: write KIND/NAME`},
		"deploy/a/b":                     {wantErr: `"a/b" is not a valid name of a Deployment`},
		"Web":                            {wantErr: `"Web" is not a valid name of a Deployment`},
		"":                               {wantErr: "write KIND/NAME, like deploy/web"},
		"../../etc":                      {wantErr: "is no kind of workload"},
		"po/" + strings.Repeat("a", 254): {wantErr: "is not a valid name of a Pod"},
	}
	for in, tc := range tests {
		t.Run(in, func(t *testing.T) {
			got, err := ParseTarget(in)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("%+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}
