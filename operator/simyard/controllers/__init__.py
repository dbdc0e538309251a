"""Thin kopf glue: finalizers, and the deletion of what they hold."""
