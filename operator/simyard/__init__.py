"""Simyard: a Kubernetes operator that offers simulation software as a service."""
