"""Kubernetes clusters as sites have them: the client, its errors, what a resource is."""
