//go:build olm

package olm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/sonde-operator/sonde/test/cluster"
)

// transient are resources whose objects come and go with other objects: Events expire, and an address goes with its
// Service.
var transient = []string{"events", "componentstatuses", "ipaddresses"}

// objects lists every object of the cluster that can be listed and is not transient, as "resource.group
// namespace/name".
func objects(ctx context.Context) ([]string, error) {
	d, err := discovery.NewDiscoveryClientForConfig(cluster.Config)
	if err != nil {
		return nil, err
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("list the APIs: %w", err)
	}
	c, err := metadata.NewForConfig(cluster.Config)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(transient, r.Name) {
				continue
			}
			gvr := gv.WithResource(r.Name)
			items, err := c.Resource(gvr).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // its CRD went in the meantime
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", gvr, err)
			}
			for _, o := range items.Items {
				all = append(all, gvr.GroupResource().String()+" "+strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// added returns the entries of after that are not in before.
func added(before, after []string) []string {
	return slices.DeleteFunc(slices.Clone(after), func(o string) bool { return slices.Contains(before, o) })
}
