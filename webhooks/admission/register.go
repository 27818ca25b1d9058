package admission

import (
	"crypto/hmac"
	"net/http"
)

// Registrar is the part of controller-runtime's webhook.Server that registers webhooks.
type Registrar interface {
	Register(path string, hook http.Handler)
}

// Register makes the server answer with hook at path+secret, and with 404 at everything else below path. Only path
// is registered, because the server logs registered paths and uses them as metric labels.
func Register(server Registrar, path, secret string, hook http.Handler) {
	server.Register(path+"/", atSecret(path+secret, hook))
}

// atSecret compares in constant time, so that the time of an answer reveals nothing about the secret.
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
