//go:build faults

package faults

import (
	"testing"
	"time"
)

// row is one fault.
type row struct {
	name string
	// fault injects the fault into all captures of the scene. When it returns, the stopped parts are back.
	fault func(*testing.T, *scene)
	// after restores what the fault removed for good; nil if there is nothing.
	after func(*testing.T, *scene)
	// cells are the promised results by stage.
	cells map[stage]cell
	// patience is the timeout for these results; 0 means a minute.
	patience time.Duration
	// refused is the plugin's message when no user may download the files any more; empty if files can be downloaded.
	refused string
	// retainFor of the capture in the stage ending.
	retainFor string
	// targetGone says that the fault removes the targets, so that there is nothing to compare inside them.
	targetGone bool
}

const (
	probeEnded = "the probe has ended"
	fileWhole  = "Completed (Stopped), file"
	limitFile  = "Completed (PacketLimit), file"
	limitGone  = "Completed (PacketLimit), no file"
)

// rows are the promised matrix.
var rows = []row{
	{
		name: "probe killed (SIGKILL)", fault: onProbes("KILL"),
		cells: map[stage]cell{
			starting: ends("Failed (Killed)"), capturing: ends("Incomplete (Killed), file"),
			ending: ends("Incomplete (Killed), file"), retained: doesNotOccur(probeEnded), tracing: ends("Incomplete (Killed), file"),
		},
	},
	{
		name: "probe out of memory (OOM killer)", fault: probesOutOfMemory,
		cells: map[stage]cell{
			starting: ends("Failed (Killed)"), capturing: ends("Incomplete (Killed), file"),
			ending: ends("Incomplete (Killed), file"), retained: doesNotOccur(probeEnded), tracing: ends("Incomplete (Killed), file"),
		},
	},
	{
		name: "keeper killed (SIGKILL)", fault: keepersKilled,
		cells: unharmed,
	},
	{
		name: "agent's Pod deleted", fault: agentPodsDeleted,
		cells: drained,
	},
	{
		name: "agent's Job deleted", fault: agentJobsDeleted,
		cells: drained,
	},
	{
		name: "agent's Pod evicted (API, as by a drain)", fault: agentPodsEvicted,
		cells: drained,
	},
	{
		name: "manager killed (SIGKILL, both replicas)", fault: managersKilled,
		cells: unharmed,
	},
	{
		name: "manager away until the file's time is over", fault: managersAway, retainFor: "10s",
		cells: map[stage]cell{
			starting: survives(fileWhole), capturing: survives(fileWhole), ending: ends("Completed (Stopped), no file"), retained: survives(limitFile),
			tracing: survives(fileWhole),
		},
	},
	{
		name: "kubelet hangs for 10 s, is killed, and comes back", fault: kubeletAway,
		cells: unharmed,
	},
	{
		name: "containerd killed, and comes back", fault: containerdKilled,
		cells: unharmed,
	},
	{
		name: "API server killed, away for 20 s", fault: apiAway(20*time.Second, false), patience: 2 * time.Minute,
		cells: startLate,
	},
	{
		name: "API server hangs for a minute", fault: apiAway(time.Minute, true), patience: 2 * time.Minute,
		cells: startLate,
	},
	{
		name: "target Pod deleted", fault: targetsDeleted, targetGone: true,
		cells: map[stage]cell{
			starting: ends("Failed (TargetGone)"), capturing: ends("Completed (TargetGone), file"),
			ending: ends(fileWhole), retained: survives(limitFile), tracing: ends("Completed (TargetGone), file"),
		},
	},
	{
		// Rights in a namespace decide who may read its captures. Without the namespace no user may.
		name: "target's namespace deleted (files are then refused)", fault: namespaceDeleted, targetGone: true, refused: "has been deleted",
		cells: map[stage]cell{
			starting:  ends("Failed (TargetGone)", "Failed (AccessRevoked)"),
			capturing: ends("Completed (TargetGone), file", "Completed (TargetGone), the capture Incomplete, file"),
			ending:    ends(fileWhole, "Completed (Stopped), the capture Incomplete, file"), retained: survives(limitFile),
			tracing: ends("Completed (TargetGone), file", "Completed (TargetGone), the capture Incomplete, file"),
		},
	},
	{
		name: "capture deleted", fault: capturesDeleted,
		cells: map[stage]cell{starting: {}, capturing: {}, ending: {}, retained: {}, tracing: {}},
	},
	{
		name: "node reboots (all its processes killed, back at once)", fault: nodeReboots, targetGone: true, patience: 3 * time.Minute,
		cells: nodeLost,
	},
	{
		name: "node gone for good (killed, Node deleted when NotReady)", fault: nodeGone, targetGone: true, patience: 4 * time.Minute,
		after: nodeStarts,
		cells: nodeLost,
	},
}

// Results that several faults have in common.
var (
	drained = map[stage]cell{
		// Between the deletion of its Pod and the signal the probe may still attach.
		starting: ends("Failed (Drained)", "Incomplete (Drained), no file"), capturing: ends("Incomplete (Drained), no file"),
		ending: ends("Incomplete (Drained), no file", "Completed (Stopped), no file"), retained: ends(limitGone),
		tracing: ends("Incomplete (Drained), no file"),
	}
	unharmed = map[stage]cell{
		starting: survives(fileWhole), capturing: survives(fileWhole), ending: survives(fileWhole), retained: survives(limitFile),
		tracing: survives(fileWhole),
	}
	// A target without a process for a minute is given up, because it cannot start either.
	startLate = map[stage]cell{
		starting: survives(fileWhole, "Failed (TargetGone)"), capturing: survives(fileWhole), ending: survives(fileWhole), retained: survives(limitFile),
		tracing: survives(fileWhole),
	}
	nodeLost = map[stage]cell{
		starting: ends("Failed (NodeLost)"), capturing: ends("Incomplete (NodeLost), no file"),
		ending: ends("Incomplete (NodeLost), no file"), retained: ends(limitGone), tracing: ends("Incomplete (NodeLost), no file"),
	}
)
