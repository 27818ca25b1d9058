package intercept

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

func TestBuild(t *testing.T) {
	for name, tc := range map[string]struct {
		change     func(*Request)
		wantMatch  *v1alpha1.InterceptMatch
		wantTo     string
		wantProbes v1alpha1.InterceptSide
		wantErr    string
	}{
		"all connections": {change: func(*Request) {}, wantTo: "127.0.0.1:3000"},
		"probes":          {change: func(r *Request) { r.Probes = "client" }, wantTo: "127.0.0.1:3000", wantProbes: v1alpha1.InterceptClient},
		"a host":          {change: func(r *Request) { r.To = "localhost:1" }, wantTo: "localhost:1"},
		"IPv6":            {change: func(r *Request) { r.To = "[::1]:1" }, wantTo: "[::1]:1"},
		"no host":         {change: func(r *Request) { r.To = ":1" }, wantTo: "127.0.0.1:1"},
		"no port":         {change: func(r *Request) { r.To = "localhost" }, wantErr: `--to "localhost": write`},
		"port 0":          {change: func(r *Request) { r.To = "0" }, wantErr: "--to"},
		"container port":  {change: func(r *Request) { r.Port = 0 }, wantErr: "--port: write the port"},
		"header": {
			change: func(r *Request) { r.Headers = []string{"x-user=a=b", "x-empty="} }, wantTo: "127.0.0.1:3000",
			wantMatch: &v1alpha1.InterceptMatch{Require: v1alpha1.MatchAll, Headers: []v1alpha1.HeaderMatch{
				{Name: "x-user", TextMatch: v1alpha1.TextMatch{Exact: new("a=b")}}, {Name: "x-empty", TextMatch: v1alpha1.TextMatch{Exact: new("")}},
			}},
		},
		"header without a value": {change: func(r *Request) { r.Headers = []string{"x-user"} }, wantErr: `--header "x-user": write NAME=VALUE`},
		"path or method": {
			change: func(r *Request) { r.Path, r.Method, r.Any = "/x", "GET", true }, wantTo: "127.0.0.1:3000",
			wantMatch: &v1alpha1.InterceptMatch{
				Require: v1alpha1.MatchAny, Path: &v1alpha1.TextMatch{Exact: new("/x")}, Method: &v1alpha1.TextMatch{Exact: new("GET")},
			},
		},
		"regex": {
			change: func(r *Request) { r.PathRegex = "/v[12]/.*" }, wantTo: "127.0.0.1:3000",
			wantMatch: &v1alpha1.InterceptMatch{Require: v1alpha1.MatchAll, Path: &v1alpha1.TextMatch{Regex: new("/v[12]/.*")}},
		},
		"bad regex": {change: func(r *Request) { r.PathRegex = "(" }, wantErr: "write a regular expression of RE2, like /api/v[0-9]+/.*: error parsing regexp: missing closing )"},
		"two paths": {change: func(r *Request) { r.Path, r.PathPrefix = "/x", "/y" }, wantErr: "exclude each other"},
		"server name": {
			change: func(r *Request) { r.ServerName = "Shop.example" }, wantTo: "127.0.0.1:3000",
			wantMatch: &v1alpha1.InterceptMatch{Require: v1alpha1.MatchAll, ServerName: &v1alpha1.TextMatch{Exact: new("shop.example")}},
		},
		"server name and path": {change: func(r *Request) { r.ServerName, r.Path = "x", "/" }, wantErr: "--server-name stands alone"},
		"any of nothing":       {change: func(r *Request) { r.Any = true }, wantErr: "--any needs conditions"},
		"bad time":             {change: func(r *Request) { r.ExpiresAfter = "soon" }, wantErr: "--expires-after: "},
		"probes and a match":   {change: func(r *Request) { r.Probes = "client"; r.Method = "GET" }, wantErr: "Omit --probes or the conditions"},
		"bad probes":           {change: func(r *Request) { r.Probes = "me" }, wantErr: `--probes "me": write app or client`},
	} {
		t.Run(name, func(t *testing.T) {
			r := Request{Target: v1alpha1.TargetReference{Kind: v1alpha1.TargetDeployment, Name: "web"}, Namespace: "shop", TargetNamespace: "shop", Port: 8080, To: "3000"}
			tc.change(&r)
			o, err := r.Build("key")
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantMatch, o.Spec.Match); diff != "" {
				t.Errorf("match (-want +got):\n%s", diff)
			}
			if got := Address(o); got != tc.wantTo {
				t.Errorf("address %s, want %s", got, tc.wantTo)
			}
			if o.GenerateName != "web-" || o.Spec.ClientKey != "key" || o.Spec.Probes != tc.wantProbes || o.Spec.TargetNamespace != "" {
				t.Errorf("request %+v", o)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	value, long := "v", strings.Repeat("v", 200)
	exact, prefix, regex := v1alpha1.TextMatch{Exact: &value}, v1alpha1.TextMatch{Prefix: &value}, v1alpha1.TextMatch{Regex: &value}
	for want, match := range map[string]*v1alpha1.InterceptMatch{
		"all":           nil,
		"path=v...":     {Path: &prefix},
		"server-name=v": {ServerName: &exact},

		"path~" + long[:94] + "…": {Path: &v1alpha1.TextMatch{Regex: &long}},
		"method=v,path~v":         {Method: &exact, Path: &regex, Require: v1alpha1.MatchAll},
		"method=v or x-a=v": {
			Method: &exact, Headers: []v1alpha1.HeaderMatch{{Name: "x-a", TextMatch: exact}}, Require: v1alpha1.MatchAny,
		},
	} {
		if got := Conditions(match); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
