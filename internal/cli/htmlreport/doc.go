// Package htmlreport renders captures and traces as one self-contained HTML page, which a browser opens offline.
//
// Each text of a page may be chosen by an attacker: names in packets, paths of files, names of processes. The page is safe by
// three means. html/template escapes texts for the place where they stand. Characters that do not print, among them those that
// reverse the direction of text, are shown as escapes. A Content-Security-Policy in the page allows only the scripts and styles of
// this package, by their hashes, and no request at all.
package htmlreport
