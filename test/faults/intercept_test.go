//go:build faults

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/test/cluster"
)

// Containers of a carrier's Pod.
const (
	opener  = "opener"
	carrier = "carrier"
)

const (
	// intercepted is the number of Pods of the target.
	intercepted = 5
	// laptop answers what is intercepted.
	laptop = "laptop"
	// calm is how long a storm lasts before its fault.
	calm = 2 * time.Second
	// settling is how long a storm waits until it begins: the start of its process takes the processors of a slow machine.
	settling = 2 * time.Second
	// judged is the part of calm that shows whether the machine is overloaded. Requests from later may be slow for the fault.
	judged = calm - 500*time.Millisecond
	// calmWait is how long a storm waits at most until the machine is calm.
	calmWait = 30 * time.Second
	// slowShare is one of how many requests of the app's may be slow on a machine that is not overloaded.
	slowShare = 20
	// fullRate is how many new connections each second the faults happen under, where the machine carries them.
	fullRate = 1000
	// leastRate is the least that shows anything: ten requests within the shortest goal.
	leastRate = 100
)

// interceptScene has Pods on one node, whose port is intercepted, and a Pod on the other that sends requests to them.
type interceptScene struct {
	ns    string
	web   *appsv1.Deployment
	pods  []corev1.Pod
	asker *corev1.Pod
	to    string // address of the developer's process
	rate  int    // new connections each second
	i     *cluster.Intercepting
}

// interceptFault is one fault, injected into an intercept that works.
type interceptFault struct {
	name string
	// goal is how long after the fault a request may still fail.
	goal time.Duration
	// lasts is how long requests are sent after the fault.
	lasts time.Duration
	// inject prepares the fault. The function that it returns injects it, and returns when.
	inject func(*testing.T, *interceptScene, *corev1.Pod) func() time.Time
	// mend makes the intercept work again for all Pods; nil takes a new one after each Pod had the fault once.
	mend func(*testing.T, *interceptScene)
	// served reports that requests with the header never go to the app.
	served bool
}

var interceptFaults = []interceptFault{
	{name: "carrier killed", goal: 100 * time.Millisecond, lasts: time.Second, inject: onCarrier(carrier, syscall.SIGKILL)},
	{name: "carrier frozen", goal: 2 * time.Second, lasts: 4 * time.Second, inject: onCarrier(carrier, syscall.SIGSTOP)},
	{name: "opener killed", goal: 100 * time.Millisecond, lasts: time.Second, inject: onCarrier(opener, syscall.SIGKILL)},
	{name: "opener frozen", goal: 2 * time.Second, lasts: 4 * time.Second, inject: onCarrier(opener, syscall.SIGSTOP)},
	{name: "client killed", goal: 4 * time.Second, lasts: 6 * time.Second, inject: onClient(syscall.SIGKILL), mend: clientAgain},
	{name: "client frozen", goal: 4 * time.Second, lasts: 6 * time.Second, inject: onClient(syscall.SIGSTOP), mend: clientGoesOn},
	{name: "Stowaway killed", goal: 4 * time.Second, lasts: 6 * time.Second, inject: onStowaway(syscall.SIGKILL), mend: stowawayAgain},
	{name: "Stowaway frozen", goal: 4 * time.Second, lasts: 6 * time.Second, inject: onStowaway(syscall.SIGSTOP), mend: stowawayAgain},
	{name: "manager killed (both replicas)", lasts: 2 * time.Second, inject: managerKilled, mend: managersAgain, served: true},
}

// TestIntercepts injects each fault SONDE_ROUNDS times, by default 20, under the load of pace.
// SONDE_INTERCEPTS_TABLE=FILE writes the results there as the table of docs/reliability.md.
func TestIntercepts(t *testing.T) {
	rounds := 20
	if text := os.Getenv("SONDE_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	before := steadySnapshot(t)
	s := &interceptScene{ns: cluster.Namespace(t, nil), to: cluster.Laptop(t, laptop)}
	s.web = onHurt(t, s.ns, "web", intercepted)
	s.pods = cluster.ReadyPods(t, s.web, intercepted)
	spec := cluster.PodSpec("idle")
	spec.NodeSelector = map[string]string{corev1.LabelHostname: spare}
	spec.Containers[0].Resources = ofAService
	s.asker = cluster.Pod(t, s.ns, "asker", spec)
	inside := insideTarget(t, &s.pods[0])
	var out strings.Builder
	s.pace(t)
	if s.rate < fullRate {
		fmt.Fprintf(&out, "The machine of this run carries only %d new connections each second.\n\n", s.rate)
	}
	out.WriteString("| what happens | goal | median | longest | requests that failed, of all |\n|---|---|---|---|---|\n")
	for _, f := range interceptFaults {
		t.Run(f.name, func(t *testing.T) { out.WriteString(f.run(t, s, rounds)) })
	}
	await(t, inside, "the target's namespaces", func() snapshot { return insideTarget(t, &s.pods[0]) })
	t.Run("node gone", s.nodeGone)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	cluster.DeleteNow(t, ns)
	cluster.Gone(t, ns, cleanUp)
	awaitSnapshot(t, before)
	if file := os.Getenv("SONDE_INTERCEPTS_TABLE"); file != "" {
		if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// pace sets the rate to the highest, of fullRate and its halves, at which a storm without a fault has no failed request
// and at most one of a hundred of the app's is slow. At a higher rate requests wait in queues for processors, and fail for
// that. Each storm follows the start of an intercept, as those with a fault do.
func (s *interceptScene) pace(t *testing.T) {
	t.Helper()
	pod := &s.pods[0]
	for s.rate = fullRate; s.rate >= leastRate; s.rate /= 2 {
		failed, slow, apps := 0, 0, 0
		s.start(t)
		for n, bursts := range s.send(t, pod, 5*time.Second, func() {}) {
			for _, b := range bursts {
				if n == 0 {
					apps, slow = apps+b.Count, slow+b.Slow
				}
				if b.Answer != [...]string{pod.Name, laptop}[n] {
					failed += b.Count
				}
			}
		}
		s.end(t)
		t.Logf("%d new connections each second, without a fault: %d requests failed, and %d of the app's %d were slow", s.rate, failed, slow, apps)
		if failed == 0 && slow*100 <= apps {
			return
		}
	}
	t.Fatalf("the machine is too slow or too busy: it does not carry %d new connections each second", leastRate)
}

// run injects a fault that often, and returns its row of the table.
func (f interceptFault) run(t *testing.T, s *interceptScene, rounds int) string {
	t.Helper()
	t.Cleanup(func() {
		if s.i != nil { // the test has failed, and cluster.Intercept has killed the client
			clientAgain(t, s)
		}
	})
	var outages []time.Duration
	failed, all, overloaded := 0, 0, 0
	for n := 0; len(outages) < rounds; n++ {
		if s.i == nil {
			s.start(t)
		}
		pod := &s.pods[n%intercepted]
		o := s.storm(t, f, pod)
		switch {
		case !o.overloaded:
			outages, failed, all = append(outages, o.lasted), failed+o.failed, all+o.all
		case overloaded == 2*rounds:
			t.Fatalf("%s: the machine was overloaded before %d of %d faults", f.name, overloaded, n)
		default:
			overloaded++
		}
		if f.mend != nil {
			f.mend(t, s)
		} else if n%intercepted == intercepted-1 {
			s.end(t)
		}
	}
	s.end(t)
	if overloaded > 0 {
		t.Logf("%s: %d more times the machine was overloaded before the fault", f.name, overloaded)
	}
	slices.Sort(outages)
	median, longest := outages[len(outages)/2], outages[len(outages)-1]
	goal := "no failed request"
	if f.goal > 0 {
		goal = f.goal.String()
	}
	if longest > f.goal || f.goal == 0 && failed > 0 {
		t.Errorf("%s: requests fail for %s, want at most %s; %d of %d failed: all outages %v", f.name, longest, goal, failed, all, outages)
	}
	row := fmt.Sprintf("| %s, %d times | %s | %s | %s | %d of %d |\n", f.name, rounds, goal, median.Round(time.Millisecond), longest.Round(time.Millisecond), failed, all)
	t.Log(row)
	return row
}

// start intercepts all Pods of the target.
func (s *interceptScene) start(t *testing.T) {
	t.Helper()
	s.i = cluster.Intercept(t, s.ns, "web", intercepted, "--to", s.to, "--header", "x-developer=alice")
}

// end ends the intercept, and waits until nothing is left of it.
func (s *interceptScene) end(t *testing.T) {
	t.Helper()
	if s.i != nil {
		s.i.Interrupt(t)
		s.i = nil
	}
	cluster.NoIntercepts(t, time.Minute)
}

// outage is what a fault did to requests.
type outage struct {
	// lasted is the time from the fault to the start of the last request that failed; 0 if none did.
	lasted      time.Duration
	failed, all int
	// overloaded: too many requests were slow before the fault. What fails after it then waits for a processor.
	overloaded bool
}

// burst is a run of requests with the same result (test/workload/storm.go).
type burst struct {
	First, Last, Ended int64
	Count, Slow        int
	Answer             string
}

// storm sends requests to a Pod, some of them with the header, and injects the fault meanwhile.
func (s *interceptScene) storm(t *testing.T, f interceptFault, pod *corev1.Pod) outage {
	t.Helper()
	var at int64
	inject := f.inject(t, s, pod)
	series := s.send(t, pod, calm+f.lasts, func() {
		time.Sleep(settling + calm)
		at = inject().UnixNano()
	})
	o := outage{overloaded: isOverloaded(series[0])}
	appAnswered := false
	for n, bursts := range series {
		for _, b := range bursts {
			o.all += b.Count
			intercepted := n == 1
			switch {
			case b.Answer == pod.Name && (!intercepted || b.Ended > at): // the app also gets requests that were under way
				appAnswered = appAnswered || intercepted
			case b.Answer == laptop && intercepted:
			default:
				o.failed += b.Count
				o.lasted = max(o.lasted, time.Duration(b.Last-at))
				// A request that was under way may fail, too, and any on a machine that is overloaded.
				early := b.Last < at-int64(1500*time.Millisecond) && !o.overloaded
				if early || !strings.HasPrefix(b.Answer, "error: ") {
					t.Errorf("before or without the fault %d requests are answered by %q", b.Count, b.Answer)
				}
			}
		}
	}
	if appAnswered == f.served && !o.overloaded {
		t.Errorf("the app has answered requests with the header: %t", appAnswered)
	}
	if o.lasted > f.goal && !o.overloaded || t.Failed() {
		t.Logf("%s at %d: %+v", f.name, at, series)
	}
	return o
}

// isOverloaded judges the requests of the app's from before a fault.
func isOverloaded(bursts []burst) bool {
	slow, all := 0, 0
	for _, b := range bursts {
		if b.Last-bursts[0].First < int64(judged) {
			slow, all = slow+b.Slow, all+b.Count
		}
	}
	return slow*slowShare > all
}

// send sends requests to a Pod for that long, calls meanwhile, and returns what became of the requests without the header
// and of those with it.
func (s *interceptScene) send(t *testing.T, pod *corev1.Pod, lasts time.Duration, meanwhile func()) [2][]burst {
	t.Helper()
	awaitCalm(t)
	type answer struct {
		out string
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		out, err := cluster.Exec(t.Context(), s.asker, "/workload", "storm", "-to", pod.Status.PodIP+":8080", "-header", "x-developer: alice",
			"-for", lasts.String(), "-rate", strconv.Itoa(s.rate), "-split", judged.String(),
			"-after", settling.String())
		answers <- answer{out, err}
	}()
	meanwhile()
	a := <-answers
	var series [2][]burst
	if err := json.Unmarshal([]byte(a.out), &series); err != nil || a.err != nil {
		t.Fatalf("storm: %v, %v\n%s", err, a.err, a.out)
	}
	return series
}

// awaitCalm waits until two thirds of the machine's processor time are idle. What the fault before has left to do, such as the start of
// another carrier, would make requests wait, most of all on a machine with slow system calls.
func awaitCalm(t *testing.T) {
	t.Helper()
	last, lastIdle := processorTime(t)
	for end := time.Now().Add(calmWait); time.Now().Before(end); {
		time.Sleep(time.Second)
		all, idle := processorTime(t)
		if 3*(idle-lastIdle) >= 2*(all-last) {
			return
		}
		last, lastIdle = all, idle
	}
}

// processorTime returns the time of all processors since the machine's start, in ticks, and how much of it they were idle.
func processorTime(t *testing.T) (all, idle uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(first)[1:9] { // guests' time is in user time already
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			t.Fatalf("/proc/stat: %v", err)
		}
		all += ticks
		if i == 3 || i == 4 { // idle, and idle while waiting for a disk
			idle += ticks
		}
	}
	return all, idle
}

// signalTo finds the processes of a container. The function that it returns sends them a signal, and returns a time just before that.
// Nothing is executed or searched then: on some machines that would take longer than requests may fail.
func signalTo(t *testing.T, signal syscall.Signal, of ...containerOf) func() time.Time {
	t.Helper()
	var pids []int
	for _, c := range of {
		found := onMachine(t, containerID(c.pod, c.name))
		if len(found) == 0 {
			t.Fatalf("found no process of container %s of %s", c.name, c.pod.Name)
		}
		pids = append(pids, found...)
	}
	return func() time.Time {
		at := time.Now()
		for _, pid := range pids {
			if err := syscall.Kill(pid, signal); err != nil {
				t.Errorf("%s to process %d: %v", signal, pid, err)
			}
		}
		return at
	}
}

// containerOf is a container of a Pod.
type containerOf struct {
	pod  *corev1.Pod
	name string
}

// onMachine lists the processes of a container, given by ID. The nodes are namespaces of this machine, which sees their processes.
func onMachine(t *testing.T, id string) []int {
	t.Helper()
	if len(id) < 32 {
		t.Fatalf("%q is no container's ID, and could be a part of any process's cgroup", id)
	}
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), id) {
			continue // it has ended, or is another's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func onCarrier(container string, signal syscall.Signal) func(*testing.T, *interceptScene, *corev1.Pod) func() time.Time {
	return func(t *testing.T, _ *interceptScene, pod *corev1.Pod) func() time.Time {
		t.Helper()
		return signalTo(t, signal, containerOf{cluster.CarrierPod(t, pod), container})
	}
}

func onClient(signal syscall.Signal) func(*testing.T, *interceptScene, *corev1.Pod) func() time.Time {
	return func(t *testing.T, s *interceptScene, _ *corev1.Pod) func() time.Time {
		t.Helper()
		return func() time.Time {
			at := time.Now()
			if err := s.i.Process.Signal(signal); err != nil {
				t.Fatalf("%s to the client: %v", signal, err)
			}
			return at
		}
	}
}

// clientAgain ends what is left of a client that was killed.
func clientAgain(t *testing.T, s *interceptScene) {
	t.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), cluster.Plugin, "down", "-n", s.ns).CombinedOutput(); err != nil {
		t.Fatalf("kubectl sonde down: %v\n%s", err, out)
	}
	s.i = nil
}

func clientGoesOn(t *testing.T, s *interceptScene) {
	t.Helper()
	onClient(syscall.SIGCONT)(t, s, nil)()
	s.works(t)
}

// works waits until the developer's process answers for each Pod again.
func (s *interceptScene) works(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "all Pods intercepted again", func(ctx context.Context) error {
		for i := range s.pods {
			if got, err := cluster.Ask(ctx, s.asker, &s.pods[i], "x-developer=alice"); err != nil || got != laptop {
				return fmt.Errorf("a request to %s is answered by %q: %w", s.pods[i].Name, got, err)
			}
		}
		return nil
	})
}

func onStowaway(signal syscall.Signal) func(*testing.T, *interceptScene, *corev1.Pod) func() time.Time {
	return func(t *testing.T, _ *interceptScene, _ *corev1.Pod) func() time.Time {
		t.Helper()
		return signalTo(t, signal, containerOf{cluster.StowawayPod(t), "stowaway"})
	}
}

// stowawayAgain replaces Stowaway's Pod: a container that is killed again and again is restarted later and later.
func stowawayAgain(t *testing.T, s *interceptScene) {
	t.Helper()
	p := cluster.StowawayPod(t)
	for _, pid := range onMachine(t, containerID(p, "stowaway")) {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Errorf("let Stowaway go on: %v", err)
		}
	}
	cluster.DeleteNow(t, p)
	s.works(t)
}

func managerKilled(t *testing.T, _ *interceptScene, _ *corev1.Pod) func() time.Time {
	t.Helper()
	var all []containerOf
	for _, p := range managers(t) {
		all = append(all, containerOf{&p, "manager"})
	}
	return signalTo(t, syscall.SIGKILL, all...)
}

func managersAgain(t *testing.T, _ *interceptScene) {
	t.Helper()
	for _, p := range cluster.ManagerPods(t) {
		cluster.DeleteNow(t, &p)
	}
	cluster.AwaitManager(t.Context(), t)
}

// nodeGone loses the node with the target and its carriers in mid-intercept.
func (s *interceptScene) nodeGone(t *testing.T) {
	s.start(t)
	lost := &scene{}
	nodeGone(t, lost)
	// The Deployment's Pods may be on this node only, so none is left to intercept.
	cluster.Eventually(t, 3*time.Minute, "no carrier of the lost node", func(ctx context.Context) error {
		var agents corev1.PodList
		if err := cluster.Admin.List(ctx, &agents, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{sondev1.LabelKind: agentjob.KindCarrier}); err != nil {
			return err
		}
		if len(agents.Items) > 0 {
			return fmt.Errorf("%d Pods of carriers", len(agents.Items))
		}
		return nil
	})
	nodeStarts(t, lost)
	s.pods = cluster.ReadyPodsWithin(t, s.web, intercepted, 2*time.Minute)
	s.i.Await(t, intercepted, time.Minute)
	s.works(t)
	s.end(t)
}

// ofAService is what a container requests that matters to someone. Without a request, a container of the operator that starts on its node
// would leave it almost no processor time.
var ofAService = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}

// onHurt creates a Deployment on the node that the faults hit.
func onHurt(t *testing.T, ns, name string, replicas int32) *appsv1.Deployment {
	t.Helper()
	d := cluster.NewDeployment(ns, name, replicas, "serve")
	d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: hurt}
	d.Spec.Template.Spec.Containers[0].Resources = ofAService
	cluster.Create(t, d)
	return d
}
