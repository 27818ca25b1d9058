//go:build olm

package olm

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"
	"github.com/sonde-operator/sonde/test/installer"
)

// v1 installs by ClusterCatalog and ClusterExtension.
type v1 struct{}

// OLM v1: catalogd and operator-controller, with catalogs as images and a ServiceAccount that has only the rights that
// the install needs.
func TestV1(t *testing.T) {
	crds := programs + "/crds-v1/" // kubectl follows a link only with the slash
	kubectl(t, "", "create", "-f", crds)
	t.Cleanup(func() { // objects of a test that failed may block the deletion
		if _, err := run(context.WithoutCancel(t.Context()), "", "kubectl", "delete", "--ignore-not-found", "--timeout=60s", "-f", crds); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, "", "wait", "--for=condition=Established", "--timeout=30s", "-f", crds)
	apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: olmv1-system}}`)
	t.Cleanup(func() {
		_, _ = run(context.WithoutCancel(t.Context()), "", "kubectl", "delete", "namespace", "olmv1-system")
	})
	catalogImages(t)
	cert, key := certificate(t)
	startGuest(t, "catalogd", "--system-namespace=olmv1-system", "--external-address="+controlPlane+":8543", "--catalogs-server-addr=:8543", "--health-probe-bind-address=:8581",
		"--webhook-server-port=9543", "--metrics-bind-address=127.0.0.1:7543", "--cache-dir="+t.TempDir(), "--tls-cert="+cert, "--tls-key="+key)
	startGuest(t, "operator-controller", "--system-namespace=olmv1-system", "--health-probe-bind-address=:8582", "--cache-path="+t.TempDir(), "--catalogd-cas-dir="+filepath.Dir(cert))
	lifecycle(t, v1{})
}

// certificate creates one for catalogd's address and returns its files. The directory of cert holds nothing else, so
// that it can serve as the directory of authorities.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.ParseIP(controlPlane)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func (v1) name() string { return "OLM v1" }

// allow grants the installing ServiceAccount the rights for one bundle.
func (v1) allow(t *testing.T, bundle string) {
	t.Helper()
	manifests, err := installer.Manifests(bundle)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, string(manifests))
}

func (v1) serve(t *testing.T, version string) {
	t.Helper()
	// catalogd's own webhook, which is not installed, would set the label.
	apply(t, fmt.Sprintf(`
apiVersion: olm.operatorframework.io/v1
kind: ClusterCatalog
metadata: {name: sonde, labels: {olm.operatorframework.io/metadata.name: sonde}}
spec: {source: {type: Image, image: {ref: "quay.io/sonde/sonde-catalog:v%s"}}}
`, version))
}

func (v v1) install(t *testing.T) {
	t.Helper()
	v.allow(t, previousDir())
	v.serve(t, previous)
	apply(t, `
apiVersion: olm.operatorframework.io/v1
kind: ClusterExtension
metadata: {name: sonde}
spec:
  namespace: sonde-system
  serviceAccount: {name: sonde-installer}
  source: {sourceType: Catalog, catalog: {packageName: sonde, channels: [candidate]}}
`)
	v.await(t, previous)
}

func (v v1) upgrade(t *testing.T) {
	t.Helper()
	v.allow(t, bundleDir)
	v.serve(t, current)
	v.awaitRefusal(t)
	kubectl(t, "", "patch", "clusterextension", "sonde", "--type=merge", "-p", `{"spec":{"install":{"preflight":{"crdUpgradeSafety":{"enforcement":"None"}}}}}`)
	v.await(t, current)
}

// awaitRefusal waits until the check of CRDs refuses the upgrade; the old version stays. docs/olm.md says to turn the
// check off.
func (v v1) awaitRefusal(t *testing.T) {
	t.Helper()
	const want = "refusing to determine that change is safe"
	cluster.Eventually(t, time.Minute, want, func(ctx context.Context) error {
		got, err := field(ctx, `{.status.conditions[?(@.type=="Progressing")].message}`, "clusterextension", "sonde")
		if err == nil && !strings.Contains(got, want) {
			err = errors.New(got)
		}
		return err
	})
	v.await(t, previous)
}

// await waits until a version is installed.
func (v1) await(t *testing.T, version string) {
	t.Helper()
	want := version + "=True"
	cluster.Eventually(t, 3*time.Minute, want, func(ctx context.Context) error {
		got, err := field(ctx, `{.status.install.bundle.version}={.status.conditions[?(@.type=="Installed")].status}`, "clusterextension", "sonde")
		if err != nil {
			return err
		}
		if got != want {
			extension, _ := field(ctx, `{.status.conditions}`, "clusterextension", "sonde")
			catalog, _ := field(ctx, `{.status.conditions}`, "clustercatalog", "sonde")
			return fmt.Errorf("%q; ClusterExtension: %s; ClusterCatalog: %s", got, extension, catalog)
		}
		return nil
	})
}

func (v1) uninstall(t *testing.T) {
	t.Helper()
	kubectl(t, "", "delete", "--timeout=60s", "clusterextension", "sonde")
}

// leaves: the catalog, and the installing ServiceAccount's rights.
func (v1) leaves(object string) bool {
	resource, name, _ := strings.Cut(object, " ")
	return object == "clustercatalogs.olm.operatorframework.io sonde" || name == "sonde-installer" && strings.HasSuffix(resource, ".rbac.authorization.k8s.io") || strings.HasPrefix(name, "olmv1-system/")
}

// cleanUp deletes what the cluster admin created for OLM.
func (v1) cleanUp(t *testing.T) {
	t.Helper()
	kubectl(t, "", "delete", "clustercatalog", "sonde")
	kubectl(t, "", "delete", "clusterrole,clusterrolebinding", "sonde-installer")
}

// roles: OLM v1 adds none to the bundle's.
func (v1) roles() map[string]string { return defaultRoles() }
