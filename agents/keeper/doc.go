// Package keeper is the second container of an agent's Pod: it keeps the result of the privileged probe next to it and
// hands it to the manager, over one port with mutual TLS (internal/wire/keeperapi has the protocol). It has no rights of
// its own, and refuses to start when it is given any.
//
// Files and progress are read from the results volume, which only the probe writes; what is asked of the probe goes
// through a file in the control volume, which only the keeper writes. Nothing else connects the two.
package keeper
