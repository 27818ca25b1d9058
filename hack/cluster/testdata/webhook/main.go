// Command webhook is a mutating webhook for the end-to-end test. It adds the annotation mutated-by=webhook to every
// object in a request. It serves TLS on port 9443 with the key pair in /tls.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"time"
)

func main() {
	server := http.Server{Addr: ":9443", Handler: http.HandlerFunc(mutate), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServeTLS("/tls/tls.crt", "/tls/tls.key"))
}

func mutate(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	err := json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"response": map[string]any{
			"uid": review.Request.UID, "allowed": true, "patchType": "JSONPatch",
			"patch": []byte(`[{"op":"add","path":"/metadata/annotations","value":{"mutated-by":"webhook"}}]`),
		},
	})
	if err != nil {
		log.Print(err)
	}
}
