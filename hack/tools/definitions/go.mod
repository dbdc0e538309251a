module simyard.dev/hack/tools/definitions

go 1.24.0

require (
	github.com/prometheus-operator/prometheus-operator v0.85.0 // indirect
	github.com/rabbitmq/cluster-operator/v2 v2.16.0 // indirect
	sigs.k8s.io/gateway-api v1.4.1 // indirect
)
