"""What says which machines are a CloudSite's: if it changed, those that run would be out of sight."""

from __future__ import annotations

from simyard.api.base import unchanging

IDENTITY = "is immutable, because machines would be left behind: make a new CloudSite, then delete this one"
IN_A_CLUSTER = (unchanging("namespace", "", IDENTITY), unchanging("kubeconfigSecretRef", ".name", IDENTITY))
"""Of machines that are Kubernetes objects."""
