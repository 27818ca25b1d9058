// Package conversations finds the busiest conversations of a packet capture: packets and bytes of each pair of
// endpoints, in each direction.
//
// A packet counts as often as it is in the file. A merged capture of several Pods has the packets between two of them
// twice, once from each Pod. IP fragments other than the first have no ports and are a conversation of their own.
package conversations
