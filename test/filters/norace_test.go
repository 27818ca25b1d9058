//go:build !race

package filters

// step: each filter is compared on each packet.
const step = 1
