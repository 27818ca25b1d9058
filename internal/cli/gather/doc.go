// Package gather collects objects, logs and versions for the diagnosis of a fault of Sonde. It never reads Secrets, and
// it redacts secrets in other objects.
package gather
