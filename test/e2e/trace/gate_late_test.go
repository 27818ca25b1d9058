//go:build e2e

package trace

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// suspendJobs makes the API server suspend each new Job of a Trace, so that it exists but starts no Pod.
func suspendJobs(t *testing.T, tr *sondev1.Trace) {
	t.Helper()
	ofTrace := map[string]string{sondev1.LabelUID: string(tr.UID)}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-suspend-" + string(tr.UID)},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: ofTrace},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
				}}},
			},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: "Object{spec: Object.spec{suspend: true}}"},
			}},
		},
	}
	cluster.CreateEventually(t, cluster.Admin, policy)
	cluster.CreateEventually(t, cluster.Admin, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	})
	cluster.Eventually(t, time.Minute, "Jobs suspended", func(ctx context.Context) error {
		// A dry run shows whether the API server does so yet.
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: tr.Namespace, GenerateName: "dry-", Labels: ofTrace}}
		job.Spec.Template.Spec = cluster.PodSpec("idle")
		job.Spec.Template.Spec.RestartPolicy = "Never"
		if err := cluster.Admin.Create(ctx, job, client.DryRunAll); err != nil {
			return err
		}
		if job.Spec.Suspend == nil || !*job.Spec.Suspend {
			return errors.New("a dry run is not suspended")
		}
		return nil
	})
}

// resumeJobs resumes each suspended Job of a Trace this long after its creation.
func resumeJobs(t *testing.T, tr *sondev1.Trace, late time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var resuming sync.WaitGroup
	t.Cleanup(func() { cancel(); resuming.Wait() })
	resuming.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		met := map[types.UID]time.Time{}
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			var list batchv1.JobList
			if err := cluster.Admin.List(ctx, &list, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(tr.UID)}); err != nil {
				continue // the next pass tries again
			}
			for i := range list.Items {
				job := &list.Items[i]
				if _, ok := met[job.UID]; !ok {
					met[job.UID] = time.Now() // the API's times are whole seconds
				}
				if job.Spec.Suspend != nil && *job.Spec.Suspend && time.Since(met[job.UID]) >= late {
					_ = cluster.Admin.Patch(ctx, job, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":false}}`)))
				}
			}
		}
	})
}
