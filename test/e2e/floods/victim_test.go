//go:build e2e

package floods

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// measure is what the victim waits for.
type measure int

const (
	untilJob measure = iota // from the creation of a capture until its Job exists
	download                // a whole small file, by token
	webhook                 // the answer to a capture with a filter, as a dry run
	control                 // the API server's answers to as many requests as the webhook's answer takes, without Sonde
	measures
)

func (m measure) String() string {
	return [...]string{"a capture's Job", "a download", "the webhook's answer", "five requests to the API server alone"}[m]
}

const (
	// pause is between two samples of a measure.
	pause = 100 * time.Millisecond
	// patience is how long the victim waits for one answer.
	patience = 30 * time.Second
)

// samples are what one measure took. A failed one counts with the time until it failed.
type samples struct {
	took   []time.Duration
	failed []error
}

// p99 is the longest sample if there are 100 or fewer.
func (s samples) p99() time.Duration { return s.quantile(99) }

func (s samples) quantile(percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(s.took))
	return sorted[len(sorted)*percent/100]
}

// phase holds the samples of all measures while there is, or is not, a flood.
type phase [measures]samples

func join(a, b phase) phase {
	var joined phase
	for m := range joined {
		joined[m] = samples{slices.Concat(a[m].took, b[m].took), slices.Concat(a[m].failed, b[m].failed)}
	}
	return joined
}

// victim is a tenant with a Deployment to capture, and a capture whose file is kept.
type victim struct {
	ns, path, token string
	config          *rest.Config
	client          client.Client
	jobs            *jobs
	stored          *sondev1.PacketCapture
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "web", 1, "idle")
	// The Jobs start no Pods, whose start is not measured and takes most of a small machine's time.
	cluster.SuspendJobs(t, sondev1.LabelAppInstance, ns)
	// Like the manager and the flooder, the victim is a ServiceAccount: the API server gives all of them one share of its time.
	config := rest.AnonymousClientConfig(cluster.Config)
	config.BearerToken, config.QPS, config.Burst = cluster.ServiceAccountToken(t, ns, "victim"), 200, 400
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Bind(t, ns, "system:serviceaccount:"+ns+":victim", "admin")
	v := &victim{ns: ns, token: rand.Text() + rand.Text(), config: config, client: c, jobs: watchJobs(t)}
	v.stored = &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stored"},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "web", Duration: "10m", RetainFor: "2h"},
	}
	cluster.CreateEventually(t, c, v.stored)
	cluster.AwaitCapturing(t, v.stored)
	cluster.Stop(t, v.stored)
	access := cluster.ResultAccess(v.stored, v.token)
	access.Spec.ExpirationSeconds = 3600
	if err := c.Create(t.Context(), access); err != nil {
		t.Fatal(err)
	}
	e := v.stored.Status.Pods[0]
	v.path = cluster.ResultPath(v.stored) + "/files/" + e.UID + "/" + e.Files[0].Name
	cluster.Eventually(t, 10*time.Second, "the victim's download", v.download)
	return v
}

// observe takes samples of all measures for a while, each one after the other.
func (v *victim) observe(t *testing.T, lasting time.Duration) phase {
	t.Helper()
	var p phase
	var group sync.WaitGroup
	for m, one := range map[measure]func(context.Context) (time.Duration, error){
		untilJob: v.untilJob, download: timed(v.download), webhook: timed(v.webhook), control: timed(v.control),
	} {
		group.Go(func() {
			for begin := time.Now(); time.Since(begin) < lasting && t.Context().Err() == nil; time.Sleep(pause) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				took, err := one(ctx)
				cancel()
				p[m].took = append(p[m].took, took)
				if err != nil {
					p[m].failed = append(p[m].failed, err)
				}
			}
		})
	}
	group.Wait()
	for m := range p {
		t.Logf("%s: %d samples, %d failed, median %v, p99 %v", measure(m), len(p[m].took), len(p[m].failed),
			p[m].quantile(50).Round(time.Millisecond), p[m].quantile(99).Round(time.Millisecond))
	}
	return p
}

func timed(do func(context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		err := do(ctx)
		return time.Since(begin), err
	}
}

func (v *victim) untilJob(ctx context.Context) (time.Duration, error) {
	pc := &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.ns, GenerateName: "victim-", Labels: map[string]string{sondev1.LabelAppInstance: v.ns}},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "web", Duration: "1m", RetainFor: "10s"},
	}
	begin := time.Now()
	if err := v.client.Create(ctx, pc); err != nil {
		return time.Since(begin), fmt.Errorf("create a capture: %w", err)
	}
	created, err := v.jobs.await(ctx, string(pc.UID), watch.Added)
	took := created.Sub(begin)
	if err != nil {
		took = time.Since(begin)
	}
	// Delete it also if it has waited too long, and wait until its Job is gone: it holds a place on the node.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err = errors.Join(err, cluster.Admin.Delete(ctx, pc))
	if err == nil {
		_, err = v.jobs.await(ctx, string(pc.UID), watch.Deleted)
	}
	return took, err
}

func (v *victim) download(ctx context.Context) error {
	resp, err := cluster.OpenResultWith(ctx, v.config, v.path, v.token)
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	if resp.StatusCode != http.StatusOK || int64(len(b)) != v.stored.Status.Pods[0].Files[0].Bytes {
		return fmt.Errorf("download: status %d, %d bytes: %.200q", resp.StatusCode, len(b), b)
	}
	return nil
}

// webhook sends a filter that differs each time, so that each one is compiled.
func (v *victim) webhook(ctx context.Context) error {
	filter := fmt.Sprintf("host 10.128.3.17 and tcp port %d", 1000+time.Now().UnixNano()/1e6%60000)
	return v.client.Create(ctx, &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.ns, GenerateName: "dry-"},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "web", Duration: "1m", Filter: filter},
	}, client.DryRunAll)
}

// control sends a dry run, and what the webhook asks the API server about a capture.
func (v *victim) control(ctx context.Context) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: v.ns, Verb: "capture", Resource: "pods"},
	}}
	return errors.Join(
		v.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v.ns, GenerateName: "dry-"}}, client.DryRunAll),
		v.client.Create(ctx, review),
		client.IgnoreNotFound(v.client.Get(ctx, client.ObjectKey{Namespace: v.ns, Name: "none"}, &corev1.ConfigMap{})),
		v.client.Get(ctx, client.ObjectKey{Name: v.ns}, &corev1.Namespace{}),
		v.client.Get(ctx, client.ObjectKey{Namespace: v.ns, Name: "web"}, &appsv1.Deployment{}),
	)
}

// jobs holds when a watch first reported each event of each capture's Job.
type jobs struct {
	mu   sync.Mutex
	seen map[string]time.Time // by event and the capture's UID
}

func watchJobs(t *testing.T) *jobs {
	t.Helper()
	c, err := client.NewWithWatch(cluster.Config, client.Options{Scheme: cluster.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	j := &jobs{seen: map[string]time.Time{}}
	go func() {
		for t.Context().Err() == nil {
			events, err := c.Watch(t.Context(), &batchv1.JobList{}, client.InNamespace(cluster.OperatorNamespace), client.HasLabels{sondev1.LabelUID})
			if err != nil {
				time.Sleep(pause)
				continue
			}
			for e := range events.ResultChan() {
				if o, ok := e.Object.(client.Object); ok {
					j.add(e.Type, o.GetLabels()[sondev1.LabelUID])
				}
			}
		}
	}()
	return j
}

func (j *jobs) add(event watch.EventType, uid string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if key := string(event) + uid; j.seen[key].IsZero() {
		j.seen[key] = time.Now()
	}
}

// await waits for an event of a capture's Job and returns when it was reported.
func (j *jobs) await(ctx context.Context, uid string, event watch.EventType) (time.Time, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		j.mu.Lock()
		at := j.seen[string(event)+uid]
		j.mu.Unlock()
		if !at.IsZero() {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return at, fmt.Errorf("the capture's Job was not %s: %w", event, ctx.Err())
		case <-tick.C:
		}
	}
}
