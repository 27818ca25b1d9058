package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

// constraintPatience is how long OpenShift's admission may take to act on its objects.
const constraintPatience = time.Minute

// defaultSCCs are the SecurityContextConstraints of every OpenShift cluster. The admission plugin answers no request
// until it sees the older of them.
var defaultSCCs = []string{
	"anyuid", "hostaccess", "hostmount-anyuid", "hostmount-anyuid-v2", "hostnetwork", "hostnetwork-v2",
	"nested-container", "nonroot", "nonroot-v2", "privileged", "restricted", "restricted-v2", "restricted-v3",
}

// authenticatedSCCs are the default SCCs that OpenShift 4.21 lets everybody use.
var authenticatedSCCs = []string{"restricted-v2", "restricted-v3"}

func openshiftValues() map[string]any {
	return map[string]any{"SCCs": defaultSCCs, "Authenticated": authenticatedSCCs}
}

// addConstraints creates the objects that OpenShift's admission needs. It runs before the controllers start, so that no
// Pod is created without an SCC.
func (u *up) addConstraints(ctx context.Context) error {
	if u.Flavour != openshift {
		return nil
	}
	client, err := adminAPI(u.layout)
	if err != nil {
		return err
	}
	if err := u.create(ctx, filepath.Join(u.Binaries, sccCRD)); err != nil {
		return err
	}
	err = u.await(ctx, constraintPatience, "the API of SecurityContextConstraints", func(ctx context.Context) error {
		return client.get(ctx, "/apis/security.openshift.io/v1/securitycontextconstraints", nil)
	})
	if err != nil {
		return err
	}
	for _, manifest := range []string{"openshift-scc.yaml", "openshift-rbac.yaml", "openshift-ranges.yaml"} {
		if err := u.createAsset(ctx, manifest); err != nil {
			return err
		}
	}
	u.step("SecurityContextConstraints created")
	return nil
}

// awaitConstraints waits until every namespace has its ranges and Pods get an SCC. Before, the admission plugin refuses
// every Pod.
func (u *up) awaitConstraints(ctx context.Context) error {
	if u.Flavour != openshift {
		return nil
	}
	client, err := adminAPI(u.layout)
	if err != nil {
		return err
	}
	err = u.await(ctx, constraintPatience, "the ranges of namespaces", func(ctx context.Context) error {
		return touchNamespaces(ctx, client)
	})
	if err != nil {
		return err
	}
	err = u.await(ctx, constraintPatience, "OpenShift's SCC admission", func(ctx context.Context) error {
		return admits(ctx, client)
	})
	if err == nil {
		u.step("SCC admission works")
	}
	return err
}

const uidRangeAnnotation = "openshift.io/sa.scc.uid-range"

// touchNamespaces sends an empty patch to each namespace, which triggers the policy that assigns ranges. It returns an
// error while a namespace has none.
func touchNamespaces(ctx context.Context, client *api) error {
	var namespaces struct {
		Items []struct {
			Metadata struct {
				Name        string            `json:"name"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := client.get(ctx, "/api/v1/namespaces", &namespaces); err != nil {
		return err
	}
	var without error
	for _, ns := range namespaces.Items {
		if ns.Metadata.Annotations[uidRangeAnnotation] != "" {
			continue
		}
		without = errors.Join(without, fmt.Errorf("namespace %s has no ranges", ns.Metadata.Name))
		if err := client.patch(ctx, "/api/v1/namespaces/"+ns.Metadata.Name, map[string]any{}); err != nil {
			return err
		}
	}
	return without
}

// admits returns nil if a Pod would get an SCC now. It checks in a namespace of Kubernetes that OpenShift does not
// exempt.
func admits(ctx context.Context, client *api) error {
	pod, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "asked"},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "asked", "image": pauseImage}}},
	})
	if err != nil {
		return fmt.Errorf("encode a Pod: %w", err)
	}
	var admitted struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	err = client.do(ctx, http.MethodPost, "/api/v1/namespaces/kube-node-lease/pods?dryRun=All", "application/json", pod, &admitted)
	if err != nil {
		return err
	}
	if admitted.Metadata.Annotations["openshift.io/scc"] == "" {
		return errors.New("a Pod is admitted without an SCC")
	}
	return nil
}

// createAsset creates the objects of the manifest called name.
func (u *up) createAsset(ctx context.Context, name string) error {
	path := filepath.Join(u.etc(), name)
	if err := renderFile(path, name, openshiftValues()); err != nil {
		return err
	}
	return u.create(ctx, path)
}

// create creates the objects in the file at path. It does not use `apply`, which drops null fields, because an SCC has
// fields that are required and may be null.
func (u *up) create(ctx context.Context, path string) error {
	cmd := kubectl(ctx, u.layout, u.state, "create", "-f", path)
	cmd.SysProcAttr = dieTogether()
	if err := runQuietly(cmd); err != nil {
		return fmt.Errorf("create the objects of %s: %w", filepath.Base(path), err)
	}
	return nil
}
