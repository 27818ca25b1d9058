package main

import (
	"crypto/subtle"
	"crypto/tls"
	"flag"
	"fmt"
	"net/http"
)

// repository serves a directory over HTTPS to whoever has the password, as a repository of Helm charts does.
func repository(f *flag.FlagSet, args []string) error {
	addr := f.String("listen", ":8443", "address")
	dir := f.String("dir", "/charts", "directory that is served")
	cert, key := f.String("cert", "/tls/tls.crt", "certificate"), f.String("key", "/tls/tls.key", "its key")
	user, password := f.String("user", "", "user name"), f.String("password", "", "password")
	if err := f.Parse(args); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	files := http.FileServer(http.Dir(*dir))
	return listenTLS(*addr, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, p, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(u+":"+p), []byte(*user+":"+*password)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(w, r)
	}))
}
