// Package keeper is the second container of an agent's Pod. It keeps the result of the privileged probe and serves it
// to the manager, over one port with mutual TLS. The protocol is in internal/wire/keeperapi. The keeper has no rights,
// and refuses to start with any.
//
// Files and progress are read from the results volume, which only the probe writes. Requests to the probe are a
// file in the control volume, which only the keeper writes. The two share nothing else.
package keeper
