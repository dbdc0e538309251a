# SPDX-License-Identifier: Apache-2.0
"""Runs a development environment: a real Kubernetes control plane and a real RabbitMQ on loopback."""
