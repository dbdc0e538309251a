"""Simyard's development environment: a real Kubernetes control plane and a real RabbitMQ on loopback."""
