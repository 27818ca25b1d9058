// Package results is the plugin's side of the results endpoint: live counts and files of a capture,
// read from the manager through the API server's services/proxy. What opens the endpoint is a token
// whose hash stands in a ResultAccess; the token itself goes only into the header X-Sonde-Token, as
// the API server takes the Authorization header for itself.
package results
