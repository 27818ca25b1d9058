package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// validity of every certificate: a test cluster lives for hours.
	validity = 90 * 24 * time.Hour
	// clockSkew makes certificates valid slightly before their creation.
	clockSkew = time.Hour
	// serviceAccountKeyBits is the key size for RS256 tokens of service accounts.
	serviceAccountKeyBits = 2048
	serialBits            = 120
)

// keyPair is a certificate with its private key.
type keyPair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// subject is the identity in a certificate. Kubernetes reads user and groups from common name and organizations.
type subject struct {
	name   string
	groups []string
	// hosts are the DNS names and IP addresses of a server certificate.
	hosts []string
}

// newAuthority creates a self-signed certificate authority.
func newAuthority(name string) (*keyPair, error) {
	t := certificateTemplate(subject{name: name})
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage |= x509.KeyUsageCertSign
	t.ExtKeyUsage = nil
	return newKeyPair(t, nil)
}

// issue creates a certificate, for clients and servers alike, signed by k.
func (k *keyPair) issue(s subject) (*keyPair, error) {
	return newKeyPair(certificateTemplate(s), k)
}

func certificateTemplate(s subject) *x509.Certificate {
	now := time.Now()
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: s.name, Organization: s.groups},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, h := range s.hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	return t
}

func newKeyPair(t *x509.Certificate, ca *keyPair) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key for %s: %w", t.Subject.CommonName, err)
	}
	t.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("generate a serial number: %w", err)
	}
	parent, signer := t, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", t.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate of %s: %w", t.Subject.CommonName, err)
	}
	return &keyPair{cert: cert, key: key}, nil
}

func (k *keyPair) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.cert.Raw})
}

func (k *keyPair) keyPEM() ([]byte, error) { return privatePEM(k.key) }

func privatePEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// identities are the clients of the API server that get a kubeconfig, by the name of the file.
func identities(nodes int) map[string]subject {
	ids := map[string]subject{
		"admin":      {name: "kubernetes-admin", groups: []string{"system:masters"}},
		"kcm":        {name: "system:kube-controller-manager"},
		"scheduler":  {name: "system:kube-scheduler"},
		"kube-proxy": {name: "system:kube-proxy"},
		// base.yaml gives it its rights.
		"provisioner": {name: "sonde-cluster:provisioner"},
	}
	for i := 1; i <= nodes; i++ {
		// The node authorizer knows a kubelet by this user and group.
		ids["kubelet-"+nodeName(i)] = subject{name: "system:node:" + nodeName(i), groups: []string{"system:nodes"}}
	}
	return ids
}

// servers are the serving certificates, by the name of the file.
func servers(nodes int) map[string]subject {
	all := map[string]subject{
		"apiserver": {name: "kube-apiserver", hosts: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			"localhost", "127.0.0.1", controlPlaneIP, kubernetesIP,
		}},
	}
	for i := 1; i <= nodes; i++ {
		all["kubelet-server-"+nodeName(i)] = subject{name: "system:node:" + nodeName(i), hosts: []string{nodeName(i), nodeIP(i)}}
	}
	return all
}

// writePKI writes all keys of a cluster: two authorities, serving certificates, a kubeconfig for each component, and
// the key that signs tokens of service accounts. The second authority signs only the certificate that the API server
// presents to aggregated APIs, so that no other certificate of the cluster works there.
func writePKI(l layout, nodes int) error {
	ca, err := newAuthority("kubernetes-ca")
	if err != nil {
		return err
	}
	front, err := newAuthority("front-proxy-ca")
	if err != nil {
		return err
	}
	w := pkiWriter{dir: l.pki()}
	w.pair("ca", ca, nil)
	w.file("front-ca.crt", front.certPEM())
	for file, s := range servers(nodes) {
		w.issued(file, ca, s)
	}
	w.issued("apiserver-kubelet", ca, subject{name: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}})
	w.issued("front-proxy", front, subject{name: "front-proxy-client"})
	inside := fmt.Sprintf("https://%s:%d", controlPlaneIP, apiPort)
	for file, s := range identities(nodes) {
		w.kubeconfig(filepath.Join(l.pki(), file+".kubeconfig"), inside, ca, s)
	}
	w.kubeconfig(l.kubeconfig(), "https://"+l.apiForward(), ca, identities(0)["admin"])
	w.serviceAccountKey()
	return w.err
}

// pkiWriter writes keys and keeps the first error.
type pkiWriter struct {
	dir string
	err error
}

func (w *pkiWriter) file(name string, content []byte) {
	if w.err == nil {
		w.err = os.WriteFile(filepath.Join(w.dir, name), content, 0o600)
	}
}

func (w *pkiWriter) pair(name string, k *keyPair, err error) {
	if err != nil || w.err != nil {
		w.fail(err)
		return
	}
	key, err := k.keyPEM()
	w.fail(err)
	w.file(name+".crt", k.certPEM())
	w.file(name+".key", key)
}

func (w *pkiWriter) issued(name string, ca *keyPair, s subject) {
	k, err := ca.issue(s)
	w.pair(name, k, err)
}

func (w *pkiWriter) kubeconfig(path, server string, ca *keyPair, s subject) {
	k, err := ca.issue(s)
	if err != nil {
		w.fail(err)
		return
	}
	key, err := k.keyPEM()
	w.fail(err)
	var b bytes.Buffer
	w.fail(render(&b, "kubeconfig.yaml", map[string]any{
		"Server": server, "CA": ca.certPEM(), "Cert": k.certPEM(), "Key": key,
	}))
	if w.err == nil {
		w.err = os.WriteFile(path, b.Bytes(), 0o600)
	}
}

func (w *pkiWriter) serviceAccountKey() {
	key, err := rsa.GenerateKey(rand.Reader, serviceAccountKeyBits)
	if err != nil {
		w.fail(err)
		return
	}
	private, err := privatePEM(key)
	w.fail(err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	w.fail(err)
	w.file("sa.key", private)
	w.file("sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
}

func (w *pkiWriter) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}
