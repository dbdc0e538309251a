"""Pure builders of manifests: custom resource definitions, access rules, admission policies, services."""
