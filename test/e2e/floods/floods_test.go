//go:build e2e

package floods

import (
	"os"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// floodTime is how long the victim is measured beside each flood. Before and after it, it is measured for half of that time.
const floodTime = time.Minute

// TestFloods has one tenant flood the API server with requests of each kind, and measures another tenant's before, meanwhile and
// after. SONDE_FLOODS_TABLE=FILE writes the figures there as the table of docs/reliability.md. SONDE_FLOOD_TIME=10s shortens the
// floods, to try a change.
func TestFloods(t *testing.T) {
	lasting := floodTime
	if text := os.Getenv("SONDE_FLOOD_TIME"); text != "" {
		var err error
		if lasting, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	v := newVictim(t)
	v.observe(t, 5*time.Second) // fills caches and opens connections
	before := v.observe(t, lasting/2)
	var results []result
	for _, f := range floods {
		t.Run(f.name, func(t *testing.T) {
			r := result{flood: f.name}
			restarts := restartsOf(t)
			r.during, r.answers = underFlood(t, f, v, lasting)
			cluster.AwaitManager(t.Context(), t)
			r.restarts = restartsOf(t).since(restarts)
			nothingLeft(t, string(v.stored.UID))
			after := v.observe(t, lasting/2)
			r.quiet, before = join(before, after), after
			r.judge(t)
			results = append(results, r)
		})
	}
	if file := os.Getenv("SONDE_FLOODS_TABLE"); file != "" && len(results) == len(floods) {
		if err := os.WriteFile(file, []byte(table(results)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// underFlood measures the victim beside a flood. It also returns the flooder's own count.
func underFlood(t *testing.T, f flood, v *victim, lasting time.Duration) (observed phase, answers string) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.Bind(t, ns, "system:serviceaccount:"+ns+":default", "admin")
	cluster.SuspendJobs(t, sondev1.LabelAppInstance, ns)
	args := f.args(t, ns)
	flooder := cluster.Pod(t, ns, "flooder", cluster.PodSpec(args...))
	awaitFlood(t, flooder, f.reached)
	observed = v.observe(t, lasting)
	answers = lastLine(t, flooder)
	t.Logf("the flooder counts %s", answers)
	cluster.DeleteNow(t, flooder)
	cluster.Gone(t, flooder, time.Minute)
	deleteAll(t, ns, &sondev1.PacketCapture{}, &sondev1.Trace{}, &sondev1.ResultAccess{})
	return observed, answers
}
