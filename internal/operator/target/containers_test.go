package target_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sonde-operator/sonde/internal/operator/target"
)

func TestContainers(t *testing.T) {
	spec := &corev1.PodSpec{
		Containers:     []corev1.Container{{Name: "web"}, {Name: "log"}},
		InitContainers: []corev1.Container{{Name: "setup"}},
		EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger-x7f"}},
		},
	}
	many := &corev1.PodSpec{}
	for i := range 12 {
		many.Containers = append(many.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i)})
	}
	for name, tc := range map[string]struct {
		spec     *corev1.PodSpec
		names    []string
		want     []string
		wantText string
	}{
		"no names":        {spec: spec, wantText: "web, log, setup (init), debugger-x7f (ephemeral)"},
		"all exist":       {spec: spec, names: []string{"debugger-x7f", "setup", "log"}, wantText: "web, log, setup (init), debugger-x7f (ephemeral)"},
		"one is missing":  {spec: spec, names: []string{"web", "proxy"}, want: []string{"proxy"}, wantText: "web, log, setup (init), debugger-x7f (ephemeral)"},
		"an empty Pod":    {spec: &corev1.PodSpec{}, names: []string{"web"}, want: []string{"web"}},
		"many containers": {spec: many, names: []string{"c11", "c12"}, want: []string{"c12"}, wantText: "c0, c1, c2, c3, c4, c5, c6, c7, and 4 more"},
	} {
		t.Run(name, func(t *testing.T) {
			names := slices.Clone(tc.names)
			if got := target.ContainersNotFound(tc.spec, tc.names); !slices.Equal(got, tc.want) {
				t.Errorf("not found %v, want %v", got, tc.want)
			}
			if !slices.Equal(names, tc.names) {
				t.Errorf("the names are changed: %v", tc.names)
			}
			if got := target.ContainersText(tc.spec); got != tc.wantText {
				t.Errorf("%q, want %q", got, tc.wantText)
			}
		})
	}
}
