// Package opener is the privileged container of an intercept's Job. It enters the target Pod's network namespace, makes the
// sockets there that its carrier needs, and steers new connections of the ports that the carrier names to the carrier's listeners.
// It reads nothing that comes from a network.
//
// The app gets its connections back when the carrier dies (the kernel removes its listeners), when the carrier freezes (the
// opener detaches), and when the opener dies (the kernel detaches, because nothing is pinned).
package opener
