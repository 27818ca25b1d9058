// Package results is the plugin's client of the results endpoint: it reads live counts and files of a capture from the
// manager through the API server's services/proxy. The endpoint requires a token whose hash is in a ResultAccess. The
// token is sent in the header X-Sonde-Token, because the API server consumes the Authorization header.
package results
