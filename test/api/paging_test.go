//go:build api

package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/operator/paging"
)

// TestLargePodsComeOneByOne: the manager decodes no page of Pods that a user has made as large as the API server takes, and
// reads each of them. The control is their metadata, which fits into one page.
func TestLargePodsComeOneByOne(t *testing.T) {
	const pods = 6
	ns := namespace(t, nil)
	var want []string
	for i := range pods {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("large-", i)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Args: []string{strings.Repeat("a", 1400<<10)}}}},
		}
		want = append(want, p.Name)
		if err := admin.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	own := rest.CopyConfig(config)
	own.Wrap(paging.Bound)
	live, err := client.New(own, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	err = paging.Each(t.Context(), live, func() *corev1.PodList { return &corev1.PodList{} }, func(page *corev1.PodList) {
		if len(page.Items) > 1 {
			t.Errorf("a page has %d Pods", len(page.Items))
		}
		for i := range page.Items {
			names = append(names, page.Items[i].Name)
		}
	}, client.InNamespace(ns))
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("Pods %v, want %v (%v)", names, want, err)
	}
	var pages []int
	err = paging.Each(t.Context(), live, func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		return list
	}, func(page *metav1.PartialObjectMetadataList) { pages = append(pages, len(page.Items)) }, client.InNamespace(ns))
	if err != nil || !slices.Equal(pages, []int{pods}) {
		t.Errorf("pages of metadata %v, want one of %d (%v)", pages, pods, err)
	}
}
