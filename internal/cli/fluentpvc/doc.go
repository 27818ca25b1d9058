// Package fluentpvc acts on FluentPVCs for a user, with the rights of that user. It lets the operator work in a namespace,
// and it repeats or gives up the processing of single volumes.
package fluentpvc
