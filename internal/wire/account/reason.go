package account

// Reasons of the end of a capture, as a probe gives them. They equal the API's (api/v1alpha1), whose packages an agent does
// not link.
const (
	ReasonDuration      = "Duration"      // ended after its duration
	ReasonStopped       = "Stopped"       // ended by request
	ReasonPacketLimit   = "PacketLimit"   // ended at maxPackets
	ReasonByteLimit     = "ByteLimit"     // ended at maxBytes
	ReasonEventLimit    = "EventLimit"    // ended at maxEvents
	ReasonTargetGone    = "TargetGone"    // the target's last process left
	ReasonTargetNotGone = "TargetNotGone" // the target lives on in a new sandbox, which is not captured
	ReasonAccessRevoked = "AccessRevoked" // ended because the requester lost the right
	ReasonPaused        = "Paused"        // ended because a cluster admin paused the operator
	ReasonDiskFull      = "DiskFull"      // no space left for the file
	ReasonDrained       = "Drained"       // the agent's Pod was terminated
	ReasonKilled        = "Killed"        // the probe stopped reporting before its end
	ReasonProbeError    = "ProbeError"    // the probe failed; the message says how
	// ReasonInterfaceNotFound: an interface that the capture names never appeared. A running probe has it while one is missing.
	ReasonInterfaceNotFound = "InterfaceNotFound"
	// ReasonInterfaceMissed: an interface was not captured the whole time. Packets may be missing that are not counted.
	ReasonInterfaceMissed = "InterfaceMissed"
)
