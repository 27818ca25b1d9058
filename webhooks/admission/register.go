package admission

import (
	"crypto/hmac"
	"net/http"
)

// Registrar is the part of controller-runtime's webhook.Server that registers webhooks.
type Registrar interface {
	Register(path string, hook http.Handler)
}

// Register makes the server answer with hook at path+secret, and with 404 at everything else below path. The server
// learns path alone, because it logs the paths that it knows and makes labels of metrics of them.
func Register(server Registrar, path, secret string, hook http.Handler) {
	server.Register(path+"/", atSecret(path+secret, hook))
}

// atSecret compares in constant time, so that the time of an answer tells nothing about the secret.
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
