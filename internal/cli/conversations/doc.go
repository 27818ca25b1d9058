// Package conversations finds out who talked most in a packet capture: packets and bytes of each
// pair of endpoints, both directions apart.
//
// A packet counts once for each time that it is in the file. A merged capture of several Pods holds
// what two of them said to each other twice, once from either Pod, and both count. Fragments behind
// the first have no ports and are a conversation of their own.
package conversations
