// Package intercept is the developer's end of an intercept: it builds the InterceptRequest, keeps the tunnel through the API server,
// connects its streams to a local address, and shows what happens. The protocol is in internal/wire/tunnel.
package intercept
