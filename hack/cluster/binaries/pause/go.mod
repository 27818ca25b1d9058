module github.com/sonde-operator/sonde/hack/cluster/binaries/pause

go 1.26.0
