package paging_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/operator/paging"
)

// apiServer serves Pods of one size, and notes the limits of the pages that it was asked for.
type apiServer struct {
	pods   int
	args   string
	limits []string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.limits = append(s.limits, q.Get("limit"))
	from, _ := strconv.Atoi("0" + q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	to := min(from+limit, s.pods)
	for i := from; i < to; i++ {
		list.Items = append(list.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), Namespace: "shop"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Args: []string{s.args}}}},
		})
	}
	if to < s.pods {
		list.Continue = strconv.Itoa(to)
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	// The client may have hung up.
	_ = protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme).Encode(list, w)
}

// TestBound: pages of large objects are read again in smaller ones before they are decoded, down to single objects of any
// size. Ordinary objects come in full pages.
func TestBound(t *testing.T) {
	for name, tc := range map[string]struct {
		pods, bytes int
		limits      []string
	}{
		"ordinary":            {2*paging.Size + 1, 16 << 10, []string{"64", "64", "64"}},
		"large":               {20, 200 << 10, []string{"64", "16", "4", "8", "16"}},
		"as large as can be":  {3, 1500 << 10, []string{"64", "16", "4", "1", "2", "1", "2"}},
		"larger than a page":  {2, paging.MaxBytes + 1, []string{"64", "16", "4", "1", "2", "1"}},
		"one, and no further": {1, paging.MaxBytes + 1, []string{"64", "16", "4", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &apiServer{pods: tc.pods, args: strings.Repeat("a", tc.bytes)}
			server := httptest.NewServer(s)
			defer server.Close()
			config := &rest.Config{Host: server.URL, QPS: -1}
			config.Wrap(paging.Bound)
			mapper := apimeta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), apimeta.RESTScopeNamespace)
			live, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme, Mapper: mapper})
			if err != nil {
				t.Fatal(err)
			}
			var got, want []string
			err = paging.Each(t.Context(), live, func() *corev1.PodList { return &corev1.PodList{} }, func(page *corev1.PodList) {
				for i := range page.Items {
					got = append(got, page.Items[i].Name)
				}
			}, client.InNamespace("shop"))
			if err != nil {
				t.Fatal(err)
			}
			for i := range tc.pods {
				want = append(want, strconv.Itoa(i))
			}
			if diff := cmp.Diff(want, got) + cmp.Diff(tc.limits, s.limits); diff != "" {
				t.Errorf("Pods, or limits of pages (-want +got):\n%s", diff)
			}
		})
	}
}
