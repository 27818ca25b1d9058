// Package keeperapi is version 1 of the protocol between the manager and the keeper in an agent's Pod. It has the paths,
// the messages, the key pairs that pin each side to the other, and the manager's client. The server is agents/keeper.
//
// It uses HTTP/1.1 over TLS 1.3. Each side presents a self-signed certificate and accepts exactly one of the other side, so
// that no certificate authority has to be kept or rotated. Both sides send the header Sonde-Protocol.
package keeperapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Version of the protocol that this package implements. A manager of version N reads N-1.
const Version = 1

// Header carries the version, in requests and in answers.
const Header = "Sonde-Protocol"

// ServerName is the keeper's DNS name in its certificate; a Pod's address does not identify the keeper.
const ServerName = "keeper"

// Paths, each below the keeper's address.
const (
	// PathProgress answers GET with the account as JSON. With the query watch=1 it answers with NDJSON: a line at once and one
	// for each change, at most two a second, until an account of state done. Blank lines are heartbeats, at least one every
	// HeartbeatInterval.
	PathProgress = "/v1/progress"
	// PathFiles, followed by a name, answers GET and HEAD with the bytes of a file of the result; Range is supported.
	PathFiles = "/v1/files/"
	// PathLive, followed by the name of a file of JSON lines or of packets, answers GET with its lines or blocks from the byte
	// QueryFrom on, until the capture has ended. Blank lines, or blocks of pcapng.Gap without bytes, are heartbeats, at least one
	// every HeartbeatInterval. With QueryNewest set to "1", records that would be sent late are skipped; a line of
	// tracefmt.AppendSkip, or a pcapng.Gap, replaces them. A pcapng.Gap of zero bytes may say up to which time all packets were
	// sent. Older keepers answer 404.
	//
	// With QueryRing and the name of a file of a ring, the answer goes on with the files that follow. A pcapng.Gap with the name is
	// before the blocks of each file, also of the first one. It has the number of packets that the reader will not get because
	// their file was removed. Older keepers and managers ignore QueryRing, so their answer does not begin with such a gap. Without
	// QueryRing the answer breaks off when the file is removed.
	PathLive = "/v1/live/"
	// PathStop takes a POST of a StopRequest.
	PathStop = "/v1/stop"
	// PathRecount takes a POST without a body when the probe is known to be dead. It answers with the probe's last account,
	// but with packets, bytes and files counted again, up to the last complete block. Older keepers answer 404.
	PathRecount = "/v1/recount"
	// PathRelease takes a POST without a body: the result is not needed any more and the keeper exits.
	PathRelease = "/v1/release"

	// QueryWatch set to "1" makes PathProgress a stream.
	QueryWatch = "watch"
)

// Bounds of the protocol.
const (
	// MaxStopBytes bounds the body of a stop request.
	MaxStopBytes = 4096
	// MaxErrorBytes bounds how much of an error's body is read.
	MaxErrorBytes = 4096
	// HeartbeatInterval is the longest silence of a stream.
	HeartbeatInterval = 5 * time.Second
)

// StopRequest requests the probe to end its capture.
type StopRequest struct {
	// Reason is one of account's ReasonStopped, ReasonTargetGone, ReasonAccessRevoked and ReasonPaused.
	Reason string `json:"reason"`
}

// ErrorBody is the JSON body of every answer that is not 2xx.
type ErrorBody struct {
	Error string `json:"error"`
}

// StatusError is an unexpected answer of the keeper.
type StatusError struct {
	Code    int    // HTTP status
	Message string // the keeper's message, cut to MaxErrorBytes
}

// Error returns the status and the keeper's message.
func (e *StatusError) Error() string {
	return fmt.Sprintf("keeper answers %d %s: %s", e.Code, http.StatusText(e.Code), e.Message)
}

// CheckVersion returns an error unless h has a version that this package supports.
func CheckVersion(h http.Header) error {
	v, err := strconv.Atoi(h.Get(Header))
	switch {
	case err != nil:
		return fmt.Errorf("header %s is %.20q: the other side is not a part of Sonde", Header, h.Get(Header))
	case v < 1 || v > Version:
		return fmt.Errorf("protocol version %d, known are 1 to %d: upgrade the older side", v, Version)
	}
	return nil
}

// SetVersion puts this package's version into h.
func SetVersion(h http.Header) { h.Set(Header, strconv.Itoa(Version)) }
