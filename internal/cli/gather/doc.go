// Package gather collects what somebody needs who looks into a fault of Sonde: objects, logs and versions, and
// none of its secrets. No Secret is ever read; what is secret in other objects is taken out.
package gather
