package collector

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

const (
	// maxRunning Jobs at the same time, of all Collectors: each renders a chart on some node, and waits for Pods. A namespace has at most as
	// many as stay free for others: 10 if it is alone, 7 of two.
	maxRunning = 20
	// maxHere is the most that one namespace has.
	maxHere = maxRunning / 2

	// placeMargin is how much longer than its deadline a Job may take a place. The deadline counts from its start, and not from its creation.
	placeMargin = 2 * time.Minute
	// cacheLag is longer than the caches lag.
	cacheLag = time.Minute
	// adoptDelay between two readings of the Jobs of an earlier leader.
	adoptDelay = time.Second
)

// places are those of the Jobs that run. They extend the cache, which lags behind this replica's own writes: workers that count the cached
// Jobs at the same time would start too many. The cache cannot show who made a Job, either: users can write Jobs with the operator's
// labels. So a Job counts if this replica has created it, or if it ran when this replica became the leader.
type places struct {
	mu sync.Mutex
	// since is when this replica first counted, and adopted is when it last looked for Jobs of an earlier leader.
	since, adopted time.Time
	taken          map[types.UID]place // by Collector
	// looked is when this replica last looked for a Collector that a free place is for.
	looked time.Time
	// waiting are the Collectors that wait for a place, and arrivals counts them.
	waiting  map[types.NamespacedName]*waiter
	arrivals uint64
}

// place of a Job.
type place struct {
	namespace, job string
	// uid of the Job; empty until its creation is known.
	uid types.UID
	// seen: the cache has had the Job.
	seen bool
	// since when it is taken, and until when at most.
	since, until time.Time
}

// isFull reports whether a Collector has to wait if so many others run, in all namespaces and in its release's.
func isFull(running, here int) bool { return here >= maxRunning-running || running >= maxRunning }

// count returns how many Collectors besides c have a place, or are called to one: in all namespaces, and in each.
func (p *places) count(c types.UID, now time.Time) (running int, by map[string]int) {
	by = map[string]int{}
	for uid, taken := range p.taken {
		if uid != c {
			by[taken.namespace]++
		}
	}
	for _, w := range p.waiting {
		if _, taken := p.taken[w.version.uid]; !taken && w.version.uid != c && w.isCalled(now) {
			by[w.namespace]++
		}
	}
	for namespace, n := range by {
		by[namespace] = min(n, maxHere)
		running += by[namespace]
	}
	return running, by
}

// countOthers sets how many other Collectors have a place.
func (p *places) countOthers(o *observation) {
	var by map[string]int
	o.running, by = p.count(o.collector.UID, o.now)
	o.runningHere = by[o.collector.ReleaseNamespace()]
}

// observePlaces counts the other Collectors with a place.
func (r *Reconciler) observePlaces(ctx context.Context, o *observation) error {
	r.places.mu.Lock()
	defer r.places.mu.Unlock()
	if err := r.refreshPlaces(ctx); err != nil {
		return err
	}
	r.places.countOthers(o)
	return nil
}

// takePlace takes a place for a Job that is created next, and returns what frees it if it is not created. Without a free place that is nil,
// and o has how many other Collectors run.
func (r *Reconciler) takePlace(ctx context.Context, o *observation, job string) (leave func(), err error) {
	p, c := &r.places, o.collector
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := r.refreshPlaces(ctx); err != nil {
		return nil, err
	}
	if p.countOthers(o); o.isQueued() {
		return nil, nil
	}
	if p.taken[c.UID].job == job {
		return func() {}, nil // an earlier pass did not learn whether it created the Job
	}
	p.taken[c.UID] = r.placeFor(c, job)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.taken, c.UID)
	}, nil
}

func (r *Reconciler) placeFor(c *sondev1.Collector, job string) place {
	now := r.Clock.Now()
	return place{namespace: c.ReleaseNamespace(), job: job, since: now, until: now.Add(deadlineOf(c) + placeMargin)}
}

// created records the Job of a place.
func (r *Reconciler) created(c *sondev1.Collector, job *batchv1.Job) {
	r.places.mu.Lock()
	defer r.places.mu.Unlock()
	taken := r.placeFor(c, job.Name)
	taken.uid = job.UID
	r.places.taken[c.UID] = taken
}

// refreshPlaces frees the places of Jobs that have ended.
func (r *Reconciler) refreshPlaces(ctx context.Context) error {
	p, now := &r.places, r.Clock.Now()
	if p.since.IsZero() {
		p.since, p.taken = now, map[types.UID]place{}
	}
	if now.Sub(p.since) <= cacheLag && now.Sub(p.adopted) >= adoptDelay {
		if err := r.adoptJobs(ctx); err != nil {
			return err
		}
		p.adopted = now
	}
	for c, taken := range p.taken {
		runs, err := r.runs(ctx, c, &taken)
		if err != nil {
			return err
		}
		if p.taken[c] = taken; !runs {
			delete(p.taken, c)
		}
	}
	return nil
}

// runs reports whether the Job of a Collector's place runs. A user who replaces it by another of its name does not get its place.
func (r *Reconciler) runs(ctx context.Context, c types.UID, p *place) (bool, error) {
	now := r.Clock.Now()
	if !now.Before(p.until) {
		return false, nil
	}
	job := &batchv1.Job{}
	err := r.Own.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: p.job}, job)
	switch {
	case gone.Is(err):
		return !p.seen && now.Sub(p.since) < cacheLag, nil
	case err != nil:
		return false, fmt.Errorf("get Job %s: %w", p.job, err)
	case p.uid == "" && job.Labels[sondev1.LabelUID] == string(c): // the answer to its creation was lost, or is on its way
		p.uid = job.UID
	case p.uid != job.UID:
		return false, nil
	}
	p.seen = true
	return !target.JobEnded(job), nil
}

// adoptJobs gives places to the Jobs of an earlier leader. Only the operator writes the status that names them.
func (r *Reconciler) adoptJobs(ctx context.Context) error {
	var all sondev1.CollectorList
	if err := r.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Collectors: %w", err)
	}
	for i := range all.Items {
		c := &all.Items[i]
		name := runName(c, c.Status.Runs)
		if _, known := r.places.taken[c.UID]; known || c.Status.Runs == 0 || c.Status.ReportedJob == name {
			continue
		}
		job := &batchv1.Job{}
		err := r.Own.Get(ctx, client.ObjectKey{Namespace: c.ReleaseNamespace(), Name: name}, job)
		if gone.Is(err) || err == nil && (target.JobEnded(job) || job.Labels[sondev1.LabelUID] != string(c.UID)) {
			continue
		}
		if err != nil {
			return fmt.Errorf("get Job %s: %w", name, err)
		}
		since := job.CreationTimestamp.Time
		r.places.taken[c.UID] = place{
			namespace: job.Namespace, job: name, uid: job.UID, seen: true, since: since, until: since.Add(maxTimeout + extraTime + placeMargin),
		}
	}
	return nil
}
