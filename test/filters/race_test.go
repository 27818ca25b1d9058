//go:build race

package filters

// step: under the race detector each filter is compared on one packet in four. It would find nothing on the others: the
// simulator has one goroutine.
const step = 4
