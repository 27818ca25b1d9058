// Command preflight runs Red Hat's certification checks on a bundle and on the operator's images, as far as they need
// neither a cluster nor Red Hat's servers. It prints every result and fails on failed checks without an explanation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/redhat-openshift-ecosystem/openshift-preflight/artifacts"
	"github.com/redhat-openshift-ecosystem/openshift-preflight/certification"
	"github.com/redhat-openshift-ecosystem/openshift-preflight/container"
	"github.com/redhat-openshift-ecosystem/openshift-preflight/operator"
)

// archs are the architectures whose images are checked.
var archs = []string{"amd64", "arm64"}

// noCluster is a kubeconfig of a cluster that does not exist. Checks that need a cluster end as errors at once, and
// never reach a cluster that the user happens to be logged in to.
const noCluster = `apiVersion: v1
kind: Config
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: none}]
`

// options name the bundle and the image to check.
type options struct {
	pusher            string // the built hack/image
	bundle, image     string // archives
	releaser          string // archive
	repository        string // name of the image when it is published: a check reads it
	tag               string
	explained, output string
}

func main() {
	var o options
	flag.StringVar(&o.pusher, "pusher", "", "the built hack/image")
	flag.StringVar(&o.bundle, "bundle", "build/bundle.tar", "archive of the bundle's image")
	flag.StringVar(&o.image, "image", "build/sonde-multiarch.tar", "archive of the operator's image")
	flag.StringVar(&o.releaser, "releaser", "build/releaser-multiarch.tar", "archive of the releaser's image")
	flag.StringVar(&o.repository, "repository", "sonde/sonde", "repository of the operator's image")
	flag.StringVar(&o.tag, "tag", "", "tag of all images, like v0.1.0")
	flag.StringVar(&o.explained, "explained", "hack/preflight/explained.yaml", "file with the checks that need not pass, and why")
	flag.StringVar(&o.output, "output", "build/preflight", "directory for the files of the checks")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "preflight:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	explained, err := readExplained(o.explained)
	if err != nil {
		return err
	}
	stop, err := offline(ctx)
	if err != nil {
		return err
	}
	defer stop()
	log.SetOutput(io.Discard) // a check logs each string that looks like an image
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	published := func(suffix string) string { return host + "/" + o.repository + suffix + ":" + o.tag }
	bundle, image, releaser := published("-bundle"), published(""), published("-releaser")
	for archive, ref := range map[string]string{o.bundle: bundle, o.image: image, o.releaser: releaser} {
		if out, err := exec.CommandContext(ctx, o.pusher, "push", archive, ref).CombinedOutput(); err != nil {
			return fmt.Errorf("push %s to the registry on loopback: %w: %s", archive, err, out)
		}
	}
	if err := alone(o.output); err != nil {
		return err
	}
	var all []outcome
	logCtx, logged := collectLogged(ctx)
	results, err := checkOperator(logCtx, bundle, o.output)
	if err != nil {
		return err
	}
	all = append(all, outcomes("operator", results, logged())...)
	for name, ref := range map[string]string{"container": image, "releaser": releaser} {
		for _, arch := range archs {
			logCtx, logged := collectLogged(ctx)
			results, err := checkContainer(logCtx, ref, arch, filepath.Join(o.output, name))
			if err != nil {
				return err
			}
			all = append(all, outcomes(name+"/"+arch, results, logged())...)
		}
	}
	return report(os.Stdout, all, explained)
}

func checkOperator(ctx context.Context, bundle, output string) (certification.Results, error) {
	ctx, err := withArtifacts(ctx, output+"/operator")
	if err != nil {
		return certification.Results{}, err
	}
	results, err := operator.NewCheck(bundle, "none.invalid/catalog:none", []byte(noCluster), operator.WithInsecureConnection()).Run(ctx)
	if err != nil {
		return results, fmt.Errorf("check the bundle: %w", err)
	}
	return results, nil
}

// checkContainer runs the checks for images without an operating system. Red Hat chooses these by the project's entry
// in its database.
func checkContainer(ctx context.Context, image, arch, output string) (certification.Results, error) {
	ctx, err := withArtifacts(ctx, output+"/"+arch)
	if err != nil {
		return certification.Results{}, err
	}
	database := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"_id": "none", "container": {"os_content_type": "Scratch Image", "type": "scratch"}}`)
	}))
	defer database.Close()
	http.DefaultTransport.(*http.Transport).TLSClientConfig = database.Client().Transport.(*http.Transport).TLSClientConfig
	results, err := container.NewCheck(image,
		container.WithPlatform(arch), container.WithInsecureConnection(),
		container.WithPyxisHost(strings.TrimPrefix(database.URL, "https://")), container.WithCertificationComponent("none", "none"),
	).Run(ctx)
	if err != nil {
		return results, fmt.Errorf("check the image for %s: %w", arch, err)
	}
	return results, nil
}

func withArtifacts(ctx context.Context, dir string) (context.Context, error) {
	writer, err := artifacts.NewFilesystemWriter(artifacts.WithDirectory(dir))
	if err != nil {
		return nil, fmt.Errorf("create %s for the files of the checks: %w", dir, err)
	}
	return artifacts.ContextWithWriter(ctx, writer), nil
}

// offline sends everything that would leave this machine to a proxy that refuses it. Go never sends requests for
// loopback to a proxy.
func offline(ctx context.Context) (stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	for _, variable := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		if err := os.Setenv(variable, "http://"+listener.Addr().String()); err != nil {
			return nil, err
		}
	}
	if err := os.Setenv("NO_PROXY", ""); err != nil {
		return nil, err
	}
	refusal := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this check runs offline", http.StatusForbidden)
	})}
	go func() { _ = refusal.Serve(listener) }()
	return func() { _ = refusal.Close() }, nil
}

// alone hides from the checks what they would find on this machine: the user's cluster, and an operator-sdk.
func alone(output string) error {
	kubeconfig := filepath.Join(output, "kubeconfig")
	if err := errors.Join(os.MkdirAll(output, 0o755), os.WriteFile(kubeconfig, []byte(noCluster), 0o600)); err != nil {
		return fmt.Errorf("write the kubeconfig of no cluster: %w", err)
	}
	return errors.Join(os.Setenv("KUBECONFIG", kubeconfig), os.Setenv("PATH", ""))
}
