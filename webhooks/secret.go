package webhooks

import (
	"crypto/hmac"
	"net/http"
)

// Registrar is the part of controller-runtime's webhook.Server that takes webhooks.
type Registrar interface {
	Register(path string, hook http.Handler)
}

// Register has the server answer with hook at path+secret, and with 404 at everything else below path. The
// server is told path alone: it logs the paths that it is told, and makes labels of metrics of them.
func Register(server Registrar, path, secret string, hook http.Handler) {
	server.Register(path+"/", atSecret(path+secret, hook))
}

// atSecret compares in constant time: whoever measures how long an answer takes learns nothing.
func atSecret(path string, hook http.Handler) http.Handler {
	want := []byte(path)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hmac.Equal([]byte(r.URL.Path), want) {
			http.NotFound(w, r)
			return
		}
		hook.ServeHTTP(w, r)
	})
}
