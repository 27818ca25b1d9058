// Package stowaway is the cluster's end of the tunnel to developers' machines. It joins the streams that carriers open with the
// sessions of the clients, by the routes that the manager sends. The protocol is in internal/wire/tunnel.
//
// The process has no rights: no API token, no capability, and after its start no files and no outgoing connections. Everything it
// knows is the State of the manager. It authorizes each connection by the key of its other side.
//
//	port of peers    manager: State, Status       carrier: Table, reports, streams to its Pod's routes
//	port of clients  HTTP/1.1 upgrade through the API server, then TLS inside, then streams to the client
package stowaway
