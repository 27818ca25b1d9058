package platform

import (
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sonde-operator/sonde/internal/operator/certs"
)

// alert is a rule of Prometheus. In expr, JOB stands for the labels of the manager's own series.
type alert struct {
	name, expr, after, severity string
	// summary says what is wrong, runbook what it means and what to do.
	summary, runbook string
}

// alerts are for all replicas together: gauges are the same on each, counters are summed.
var alerts = []alert{
	{
		name: "SondeManagerAbsent", severity: "warning", after: "10m",
		// Only if there was a manager within a day: a cluster that does not collect the metrics gets no alert.
		expr:    `absent(up{JOB} == 1) and on() count_over_time(up{JOB}[1d]) > 0`,
		summary: "No replica of Sonde's manager answers.",
		runbook: "Captures that run go on and end by themselves; new ones are refused by the API server, and results cannot be fetched. " +
			"Look at kubectl -n NAMESPACE get pods and the log of Deployment sonde-manager. If its Pods are ready, Prometheus lacks the right to get /metrics: " +
			"bind ClusterRole sonde-metrics-reader to its ServiceAccount.",
	},
	{
		name: "SondeReconcileErrors", severity: "warning", after: "30m",
		expr:    `sum by (controller) (rate(controller_runtime_reconcile_errors_total{JOB}[10m])) > 0`,
		summary: "Controller {{ $labels.controller }} of Sonde has been failing for half an hour.",
		runbook: "What it keeps in order is not as it should be: captures do not begin, or objects are not repaired. The manager's log has each error with what to do " +
			"(kubectl -n NAMESPACE logs deployment/sonde-manager | grep '\"level\":\"error\"'); a right that was taken away is the usual cause.",
	},
	{
		name: "SondePacketsDropped", severity: "warning", after: "0m",
		expr: `sum(increase(sonde_dropped_packets_total{JOB}[1h])) / ` +
			`(sum(increase(sonde_dropped_packets_total{JOB}[1h])) + sum(increase(sonde_packets_total{JOB}[1h])) + ` +
			`sum(increase(sonde_overwritten_packets_total{JOB}[1h]))) > 0.01`,
		summary: "More than 1% of the packets that captures of the last hour should hold are in no file.",
		runbook: "Status and file of each capture say how many, and where they were lost. place=ring or kernel: probes were too slow; narrow filters, a smaller snapLength or a larger " +
			"--ring-bytes of the manager help. place=writer: the node's disk was too slow or full.",
	},
	{
		name: "SondeEventsLost", severity: "warning", after: "0m",
		expr: `sum(increase(sonde_lost_events_total{JOB}[1h])) / ` +
			`(sum(increase(sonde_lost_events_total{JOB}[1h])) + sum(increase(sonde_events_total{JOB}[1h]))) > 0.01`,
		summary: "More than 1% of the events that traces of the last hour should hold are in no file.",
		runbook: "kubectl get traces -A shows which traces lost events; lost in the status of each Pod, and the last line of its file, say where. ring: the probe was too slow; fewer groups in " +
			"events, a minLatency or a larger --ring-bytes of the manager help. rare: more programs, threads or signals at once than there was room for. recursion: the kernel did not run the " +
			"program. writer: the node's disk was too slow or full.",
	},
	{
		name: "SondeCapturesRefused", severity: "info", after: "0m",
		expr:    `sum by (reason) (increase(sonde_refusals_total{JOB}[15m])) > 20`,
		summary: "{{ $value | humanize }} requests for captures or results were refused in 15 minutes, with reason {{ $labels.reason }}.",
		runbook: "Forbidden: somebody tries what he may not (the audit log of the API server says who), or a team lacks ClusterRole sonde-capture. " +
			"Invalid or BadRequest: a script makes captures that are wrong; the answers say what is wrong with them.",
	},
	{
		name: "SondeProbesFailing", severity: "warning", after: "15m",
		expr: `sum(max by (phase) (sonde_captures{JOB,phase=~"Failed|Incomplete"})) / ` +
			`sum(max by (phase) (sonde_captures{JOB,phase=~"Failed|Incomplete|Completed"})) > 0.5 ` +
			`and sum(max by (phase) (sonde_captures{JOB,phase=~"Failed|Incomplete|Completed"})) >= 5`,
		summary: "More than half of the finished captures, which are at least five, are not whole.",
		runbook: "kubectl get sonde -A -o wide shows the reasons. ProbeError: the message of the Pod's entry in the status says what a probe lacks. JobRefused: condition " +
			"ProbesAllowed quotes who refuses the probes. NodeLost, Evicted, DiskFull: the nodes. TargetNotFound, NoPods: nothing is wrong with Sonde.",
	},
	{
		name: "SondeCapturesWaiting", severity: "info", after: "15m",
		expr:    `max(sonde_captures{JOB,phase="Pending"}) > 0`,
		summary: "Captures have been waiting for 15 minutes.",
		runbook: "Conditions say for what: ProbesAllowed is False where the cluster refuses the probes' Pods; Capturing has reason Queued, CeilingPods or CeilingNode where a " +
			"ceiling is reached, which flags of the manager raise, and else says what a Pod waits for.",
	},
}

// alertGroup returns the alerts of an install in this namespace.
func alertGroup(namespace string) monitoringv1.RuleGroup {
	job := `namespace="` + namespace + `",job="` + certs.ServiceMetrics + `"`
	fill := strings.NewReplacer("JOB", job, "NAMESPACE", namespace)
	group := monitoringv1.RuleGroup{Name: objectName}
	for _, a := range alerts {
		group.Rules = append(group.Rules, monitoringv1.Rule{
			Alert: a.name, Expr: intstr.FromString(fill.Replace(a.expr)), For: new(monitoringv1.Duration(a.after)),
			Labels:      map[string]string{"severity": a.severity},
			Annotations: map[string]string{"summary": a.summary, "description": fill.Replace(a.runbook)},
		})
	}
	return group
}
