package paging_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/operator/paging"
)

// server has this many Pods, and answers like the API server: at most the limit at once.
type server struct {
	client.Reader
	pods, calls, failAt int
}

var errServer = errors.New("no connection")

func (s *server) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if s.calls++; s.calls == s.failAt {
		return errServer
	}
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.Namespace != "shop" || o.Limit != paging.Size {
		return fmt.Errorf("namespace %q, limit %d", o.Namespace, o.Limit)
	}
	from, _ := strconv.Atoi("0" + o.Continue)
	to := min(from+int(o.Limit), s.pods)
	into := list.(*corev1.PodList)
	if len(into.Items) > 0 || into.Continue != "" {
		return errors.New("the list was used before")
	}
	for i := from; i < to; i++ {
		var p corev1.Pod
		p.Name = strconv.Itoa(i)
		into.Items = append(into.Items, p)
	}
	if to < s.pods {
		into.Continue = strconv.Itoa(to)
	}
	return nil
}

func TestEach(t *testing.T) {
	for name, tc := range map[string]struct {
		pods, failAt, wantPods, wantCalls int
		wantErr                           error
	}{
		"none":             {wantCalls: 1},
		"a page":           {pods: paging.Size, wantPods: paging.Size, wantCalls: 1},
		"more":             {pods: 2*paging.Size + 1, wantPods: 2*paging.Size + 1, wantCalls: 3},
		"an error between": {pods: 2*paging.Size + 1, failAt: 2, wantPods: paging.Size, wantCalls: 2, wantErr: errServer},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{pods: tc.pods, failAt: tc.failAt}
			var got, want []string
			err := paging.Each(t.Context(), s, func() *corev1.PodList { return &corev1.PodList{} }, func(l *corev1.PodList) {
				for i := range l.Items {
					got = append(got, l.Items[i].Name)
				}
			}, client.InNamespace("shop"))
			for i := range tc.wantPods {
				want = append(want, strconv.Itoa(i))
			}
			if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, tc.wantErr) || s.calls != tc.wantCalls {
				t.Errorf("%d calls, error %v, want %d and %v (-want +got):\n%s", s.calls, err, tc.wantCalls, tc.wantErr, diff)
			}
		})
	}
}
