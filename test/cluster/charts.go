package cluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// The user of the repositories and registries of tests.
const (
	ChartUser     = "tenant"
	ChartPassword = "open-sesame"
	// chartUserHash is the line of htpasswd for this user, with bcrypt.
	chartUserHash = ChartUser + ":$2a$04$l17RQK1KNasaKp8nHXbxYeb5DgzwahYgDNYRN00CKsX31u8WC44Hy"
)

// PackChart returns the archive of a chart with these templates by name, and its digest.
func PackChart(t *testing.T, name, version string, templates map[string]string) (archive []byte, digest string) {
	t.Helper()
	files := map[string]string{"Chart.yaml": fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", name, version)}
	for file, text := range templates {
		files["templates/"+file+".yaml"] = text
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name + "/" + file, Mode: 0o644, Size: int64(len(files[file]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[file]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), sha256Of(b.Bytes())
}

func sha256Of(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ChartServer is a Pod that serves charts over HTTPS to ChartUser.
type ChartServer struct {
	Pod *corev1.Pod
	// Host and port within the cluster.
	Host string
	// CA has the certificate that the server's is checked against, in PEM.
	CA string
	// Credentials is the Secret with ChartUser's user name and password.
	Credentials string
	spec        corev1.PodSpec
}

// NewRepository starts a repository with these archives by version, all of the chart shop.
func NewRepository(t *testing.T, ns string, archives map[string][]byte) *ChartServer {
	t.Helper()
	entries, files := []any{}, map[string][]byte{}
	for version, archive := range archives {
		file := "shop-" + version + ".tgz"
		files[file] = archive
		entries = append(entries, map[string]any{"apiVersion": "v2", "name": "shop", "version": version, "urls": []string{file}, "digest": sha256Of(archive)})
	}
	index, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "entries": map[string]any{"shop": entries}})
	if err != nil {
		t.Fatal(err)
	}
	files["index.yaml"] = index
	Create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "charts"}, BinaryData: files})
	return serveCharts(t, ns, "charts", 8443, corev1.Container{
		Image: workload, Args: []string{"repository", "--user", ChartUser, "--password", ChartPassword},
		VolumeMounts: []corev1.VolumeMount{{Name: "files", MountPath: "/charts"}},
	}, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "charts"}}})
}

// NewRegistry starts an empty registry. The test needs its image (make image-registry).
func NewRegistry(t *testing.T, ns string) *ChartServer {
	t.Helper()
	image := os.Getenv("SONDE_REGISTRY")
	if image == "" {
		t.Skip("SONDE_REGISTRY names no image: run make test-shard SHARD=collector")
	}
	const config = `version: 0.1
storage: {inmemory: {}}
auth: {htpasswd: {realm: charts, path: /config/htpasswd}}
http: {addr: ":8443", tls: {certificate: /tls/tls.crt, key: /tls/tls.key}}
`
	Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "registry"}, StringData: map[string]string{"config.yaml": config, "htpasswd": chartUserHash + "\n"}})
	return serveCharts(t, ns, "registry", 8443, corev1.Container{
		Image: image, Args: []string{"/config/config.yaml"}, VolumeMounts: []corev1.VolumeMount{{Name: "files", MountPath: "/config"}},
	}, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "registry"}})
}

func serveCharts(t *testing.T, ns, name string, port int32, c corev1.Container, files corev1.VolumeSource) *ChartServer {
	t.Helper()
	host := fmt.Sprintf("%s.%s.svc", name, ns)
	cert, key := certificate(t, host)
	Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name + "-tls"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key}})
	Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name + "-login"}, StringData: map[string]string{"username": ChartUser, "password": ChartPassword}})
	Create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: port}}}})
	c.Name = "c"
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "tls", MountPath: "/tls"})
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}, PeriodSeconds: 1}
	c.ReadinessProbe.TCPSocket.Port.IntVal = port
	s := &ChartServer{Host: fmt.Sprintf("%s:%d", host, port), CA: string(cert), Credentials: name + "-login", spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{c},
		Volumes: []corev1.Volume{{Name: "files", VolumeSource: files}, {Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name + "-tls"}}}},
	}}
	s.Pod = Pod(t, ns, name, s.spec)
	return s
}

// Stop ends the server.
func (s *ChartServer) Stop(t *testing.T) {
	t.Helper()
	DeleteNow(t, s.Pod)
	Gone(t, s.Pod, time.Minute)
}

// Start starts a server that was stopped.
func (s *ChartServer) Start(t *testing.T) {
	t.Helper()
	s.Pod = Pod(t, s.Pod.Namespace, s.Pod.Name, s.spec)
}

// Push stores a chart in a registry, as helm push does, and returns the digest of its manifest.
func (s *ChartServer) Push(t *testing.T, name, version string, archive []byte) string {
	t.Helper()
	address, stop, err := Forward(s.Pod, 8443)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(s.CA))
	host, _, _ := bytes.Cut([]byte(s.Host), []byte(":"))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: string(host), MinVersion: tls.VersionTLS12}}}
	base := "https://" + address
	config := fmt.Appendf(nil, `{"name":%q,"version":%q,"apiVersion":"v2"}`, name, version)
	descriptor := func(kind string, b []byte) map[string]any {
		return map[string]any{"mediaType": kind, "digest": sha256Of(b), "size": len(b)}
	}
	for _, blob := range [][]byte{config, archive} {
		started := request(t, client, http.MethodPost, base+"/v2/charts/"+name+"/blobs/uploads/", "", nil, http.StatusAccepted)
		where, err := url.Parse(started.Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		q := where.Query()
		q.Set("digest", sha256Of(blob))
		request(t, client, http.MethodPut, base+where.Path+"?"+q.Encode(), "application/octet-stream", blob, http.StatusCreated)
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": descriptor("application/vnd.cncf.helm.config.v1+json", config),
		"layers": []any{descriptor("application/vnd.cncf.helm.chart.content.v1.tar+gzip", archive)},
	})
	if err != nil {
		t.Fatal(err)
	}
	request(t, client, http.MethodPut, base+"/v2/charts/"+name+"/manifests/"+version, "application/vnd.oci.image.manifest.v1+json", manifest, http.StatusCreated)
	return sha256Of(manifest)
}

func request(t *testing.T, client *http.Client, method, to, contentType string, body []byte, want int) http.Header {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, to, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(ChartUser, ChartPassword)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		t.Fatalf("%s %s: %s, %s", method, to, resp.Status, text)
	}
	return resp.Header
}

// certificate returns a self-signed certificate for a host and its key, in PEM.
func certificate(t *testing.T, host string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: b})
}

// ConfigMapTemplate is a template of a ConfigMap with one value.
func ConfigMapTemplate(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %s}\n", name, value)
}

// AwaitConfigMap waits until a ConfigMap has a value.
func AwaitConfigMap(t *testing.T, ns, name, value string, within time.Duration) {
	t.Helper()
	Eventually(t, within, "ConfigMap "+name+" is "+value, func(ctx context.Context) error {
		var c corev1.ConfigMap
		if err := Admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &c); err != nil {
			return err
		}
		if c.Data["value"] != value {
			return fmt.Errorf("it is %q", c.Data["value"])
		}
		return nil
	})
}
