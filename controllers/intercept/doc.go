// Package intercept keeps one carrier Job for each Pod that an InterceptRequest targets, and Stowaway while there is any request.
//
// All requests share one Stowaway, and the requests on a Pod share its carrier. So one pass handles all of them: it observes,
// plans, acts and reports. It runs on each change, and each pollInterval while a request lives, because Stowaway has no way to
// wake the manager.
package intercept
