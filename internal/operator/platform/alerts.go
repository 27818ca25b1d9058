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
	// summary names the problem, runbook explains it and says what to do.
	summary, runbook string
}

// alerts are for all replicas together: gauges are the same on each, counters are summed.
var alerts = []alert{
	{
		name: "SondeManagerAbsent", severity: "warning", after: "10m",
		// Only if there was a manager within a day: a cluster that does not collect the metrics gets no alert.
		expr:    `absent(up{JOB} == 1) and on() count_over_time(up{JOB}[1d]) > 0`,
		summary: "No replica of Sonde's manager answers.",
		runbook: "Running captures continue and end by themselves. The API server refuses new ones, and results cannot be fetched. " +
			"See kubectl -n NAMESPACE get pods and the log of Deployment sonde-manager. If its Pods are ready, Prometheus has no right to get /metrics: " +
			"bind ClusterRole sonde-metrics-reader to its ServiceAccount.",
	},
	{
		name: "SondeReconcileErrors", severity: "warning", after: "30m",
		expr:    `sum by (controller) (rate(controller_runtime_reconcile_errors_total{JOB}[10m])) > 0`,
		summary: "Controller {{ $labels.controller }} of Sonde has been failing for half an hour.",
		runbook: "Captures might not start, and changed objects might not be repaired. The manager's log has each error and what to do about it " +
			"(kubectl -n NAMESPACE logs deployment/sonde-manager | grep '\"level\":\"error\"'). The usual cause is a right that was withdrawn.",
	},
	{
		name: "SondePacketsDropped", severity: "warning", after: "0m",
		expr: `sum(increase(sonde_dropped_packets_total{JOB}[1h])) / ` +
			`(sum(increase(sonde_dropped_packets_total{JOB}[1h])) + sum(increase(sonde_packets_total{JOB}[1h])) + ` +
			`sum(increase(sonde_overwritten_packets_total{JOB}[1h]))) > 0.01`,
		summary: "More than 1% of the packets that captures of the last hour should hold are in no file.",
		runbook: "Status and file of each capture say how many packets were lost, and where. place=ring or kernel: probes were too slow; use narrow filters, a smaller snapLength or a larger " +
			"--ring-bytes of the manager. place=writer: the node's disk was too slow or full.",
	},
	{
		name: "SondeEventsLost", severity: "warning", after: "0m",
		expr: `sum(increase(sonde_lost_events_total{JOB}[1h])) / ` +
			`(sum(increase(sonde_lost_events_total{JOB}[1h])) + sum(increase(sonde_events_total{JOB}[1h]))) > 0.01`,
		summary: "More than 1% of the events that traces of the last hour should hold are in no file.",
		runbook: "kubectl get traces -A shows which traces lost events; lost in the status of each Pod, and the last line of its file, say where. ring: the probe was too slow; use fewer groups in " +
			"events, a minLatency or a larger --ring-bytes of the manager. rare: there were more programs, threads or signals at once than there was room for. recursion: the kernel did not run the " +
			"program. writer: the node's disk was too slow or full. compat, uring, aio: calls and operations that traces do not record (docs/trace.md).",
	},
	{
		name: "SondeCapturesRefused", severity: "info", after: "0m",
		expr:    `sum by (reason) (increase(sonde_refusals_total{JOB}[15m])) > 20`,
		summary: "{{ $value | humanize }} requests for captures or results were refused in 15 minutes, with reason {{ $labels.reason }}.",
		runbook: "Forbidden: a user tries actions without the rights for them (the audit log of the API server says who), or a team needs ClusterRole sonde-capture. " +
			"Invalid or BadRequest: a script creates invalid captures; the answers say what is wrong with them.",
	},
	{
		name: "SondeProbesFailing", severity: "warning", after: "15m",
		expr: `sum(max by (phase) (sonde_captures{JOB,phase=~"Failed|Incomplete"})) / ` +
			`sum(max by (phase) (sonde_captures{JOB,phase=~"Failed|Incomplete|Completed"})) > 0.5 ` +
			`and sum(max by (phase) (sonde_captures{JOB,phase=~"Failed|Incomplete|Completed"})) >= 5`,
		summary: "More than half of at least five finished captures are incomplete or failed.",
		runbook: "kubectl get sonde -A -o wide shows the reasons. ProbeError: the message of the Pod's entry in the status says what the probe needs. JobRefused: condition " +
			"ProbesAllowed quotes the refusal of the probes. NodeLost, Evicted, DiskFull: see the nodes. TargetNotFound, NoPods: nothing is wrong with Sonde.",
	},
	{
		name: "SondeCapturesWaiting", severity: "info", after: "15m",
		expr:    `max(sonde_captures{JOB,phase="Pending"}) > 0`,
		summary: "Captures have been waiting for 15 minutes.",
		runbook: "Their conditions say why. ProbesAllowed is False if the cluster refuses the probes' Pods. Capturing has reason Queued, or one that " +
			"begins with Ceiling, if a ceiling is reached; flags of the manager raise it. Otherwise Capturing says what a Pod waits for.",
	},
	{
		name: "SondeVolumesNotProcessed", severity: "warning", after: "15m",
		expr:    `max by (phase) (sonde_fluentpvc_bindings{JOB,phase=~"FinalizerJobFailed|Unknown|DataLost"}) > 0`,
		summary: "Volumes of FluentPVCs are in phase {{ $labels.phase }}: their data is not processed.",
		runbook: "kubectl get fluentpvcbindings -A shows them; their conditions say why. FinalizerJobFailed: read the Job's log, then run kubectl sonde fluentpvc retry or discard. " +
			"Unknown: the volume of a claim is gone; restore it, or discard. DataLost: a claim was deleted before its data was processed.",
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
