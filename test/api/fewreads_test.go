//go:build api

package api

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// TestCutReads: the API server accepts a Deployment with 740,000 empty terms, and the manager's readers get the fields that they
// need of it, of a Pod, of a list of Pods and of the metadata of a ReplicaSet.
func TestCutReads(t *testing.T) {
	ns := namespace(t, nil)
	meta := metav1.ObjectMeta{Namespace: ns, Name: "web", Labels: map[string]string{"app": "web"}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: corev1.PodSpec{
		HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 700_000)},
		}},
	}}
	selector := &metav1.LabelSelector{MatchLabels: meta.Labels}
	small := template
	small.Spec.Affinity = nil
	for _, o := range []client.Object{
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)), Selector: selector, Template: template}},
		&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), Selector: selector, Template: small}},
		&corev1.Pod{ObjectMeta: meta, Spec: small.Spec},
	} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	own := rest.CopyConfig(config)
	own.Wrap(fewreads.Cut)
	whole, err := client.New(own, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	live := fewreads.New(whole, "sonde-system", fewreads.Limits{Places: 1})
	key := client.ObjectKey{Namespace: ns, Name: "web"}
	var d appsv1.Deployment
	if err := live.Get(t.Context(), key, &d); err != nil || !d.Spec.Template.Spec.HostNetwork || d.Spec.Selector.MatchLabels["app"] != "web" || d.Spec.Template.Spec.Affinity != nil {
		t.Errorf("Deployment %+v: %v", d.Spec, err)
	}
	var pod corev1.Pod
	var pods corev1.PodList
	if err := live.Get(t.Context(), key, &pod); err != nil || pod.Spec.Containers[0].Name != "c" || pod.Spec.Containers[0].Image != "" {
		t.Errorf("Pod %+v: %v", pod.Spec, err)
	}
	if err := live.List(t.Context(), &pods, client.InNamespace(ns)); err != nil || len(pods.Items) != 1 || pods.Items[0].UID != pod.UID {
		t.Errorf("Pods %+v: %v", pods.Items, err)
	}
	if set, err := target.ListedSets(live)(t.Context(), key); err != nil || set.UID == "" || len(set.Labels) > 0 {
		t.Errorf("ReplicaSet %+v: %v", set, err)
	}
}
