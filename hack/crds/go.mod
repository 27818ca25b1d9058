// The CRDs of the Prometheus operator, for tests. Nothing is built from this module.
module github.com/sonde-operator/sonde/hack/crds

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.94.0
