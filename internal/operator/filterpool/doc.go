// Package filterpool compiles filters of many users in child processes of the manager. libpcap's sandbox cannot be
// preempted: in the manager's own process a garbage collection would wait for it, and everything for the collection.
//
// There are two lanes, each with a queue and at most one child. Every filter begins in the quick lane, whose limits end a
// compilation after about a tenth of a second; usual filters need less than a millisecond. What reaches these limits is
// compiled again in the thorough lane, with the limits of pcapfilter.Most. In each lane the user goes first who has lately
// used the least of it. The limits count steps, so that the verdict on a filter never depends on the load.
//
// docs/adr/0002-filter-sandbox.md gives the reasons.
package filterpool
