// virt-manifests prints one JSON List of the objects that virt-operator installs beside programs: definitions, accounts
// and their rights, webhooks, the aggregated API, instance types and preferences.
package main

import (
	"encoding/json"
	"os"

	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/install"
	"kubevirt.io/kubevirt/pkg/virt-operator/util"
)

const namespace = "kubevirt"

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func appended[T any](items []any, more []T) []any {
	for _, item := range more {
		items = append(items, item)
	}
	return items
}

func main() {
	config := &util.KubeVirtDeploymentConfig{Namespace: namespace, Registry: "registry.invalid", KubeVirtVersion: "latest"}
	strategy := must(install.GenerateCurrentInstallStrategy(config, "", namespace))
	items := []any{must(components.NewKubeVirtCrd())}
	items = appended(items, strategy.CRDs())
	items = appended(items, strategy.ServiceAccounts())
	items = appended(items, strategy.ClusterRoles())
	items = appended(items, strategy.ClusterRoleBindings())
	items = appended(items, strategy.Roles())
	items = appended(items, strategy.RoleBindings())
	items = appended(items, strategy.MutatingWebhookConfigurations())
	items = appended(items, strategy.ValidatingWebhookConfigurations())
	items = appended(items, strategy.APIServices())
	items = appended(items, strategy.Instancetypes())
	items = appended(items, strategy.Preferences())
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	if err := json.NewEncoder(os.Stdout).Encode(list); err != nil {
		panic(err)
	}
}
