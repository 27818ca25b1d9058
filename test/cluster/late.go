package cluster

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SuspendJobs makes the API server suspend each new Job with this label, so that it exists but starts no Pod.
func SuspendJobs(t *testing.T, label, value string) {
	t.Helper()
	labelled := map[string]string{label: value}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-suspend-" + strings.ToLower(value)},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: labelled},
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
	CreateEventually(t, Admin, policy)
	CreateEventually(t, Admin, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	})
	Eventually(t, time.Minute, "Jobs suspended", func(ctx context.Context) error {
		// A dry run shows whether the API server does so yet.
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, GenerateName: "dry-", Labels: labelled}}
		job.Spec.Template.Spec = PodSpec("idle")
		job.Spec.Template.Spec.RestartPolicy = "Never"
		if err := Admin.Create(ctx, job, client.DryRunAll); err != nil {
			return err
		}
		if job.Spec.Suspend == nil || !*job.Spec.Suspend {
			return errors.New("a dry run is not suspended")
		}
		return nil
	})
}

// ResumeJobs resumes each suspended Job with this label that long after its creation.
func ResumeJobs(t *testing.T, label, value string, late time.Duration) {
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
			if err := Admin.List(ctx, &list, client.InNamespace(OperatorNamespace), client.MatchingLabels{label: value}); err != nil {
				continue // the next pass tries again
			}
			for i := range list.Items {
				job := &list.Items[i]
				if _, ok := met[job.UID]; !ok {
					met[job.UID] = time.Now() // the API's times are whole seconds
				}
				if job.Spec.Suspend != nil && *job.Spec.Suspend && time.Since(met[job.UID]) >= late {
					_ = Admin.Patch(ctx, job, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":false}}`)))
				}
			}
		}
	})
}
