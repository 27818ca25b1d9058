package admission

import (
	"net/http"

	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
)

// Registrar is the part of controller-runtime's webhook.Server that registers webhooks.
type Registrar interface {
	Register(path string, hook http.Handler)
}

// Register makes the server answer with hook at path with a segment of secret, and with 404 at everything else below path.
// Only path is registered, because the server logs registered paths and uses them as metric labels.
func Register(server Registrar, path string, secret webhookpath.Secret, hook http.Handler) {
	server.Register(path+"/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !secret.Accepts(path, r.URL.Path) {
			http.NotFound(w, r)
			return
		}
		hook.ServeHTTP(w, r)
	}))
}
