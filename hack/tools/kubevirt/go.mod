module simyard.dev/hack/tools/kubevirt

go 1.24.0

require kubevirt.io/kubevirt v1.9.0 // indirect
