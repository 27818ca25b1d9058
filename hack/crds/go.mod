// The CRDs of APIs that only some clusters have, for make test-api: nothing is built from these modules.
module github.com/sonde-operator/sonde/hack/crds

go 1.26.0

require (
	github.com/openshift/api v0.0.0-20260302174620-dcac36b908db
	github.com/prometheus-operator/prometheus-operator v0.94.0
)
