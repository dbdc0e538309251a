# SPDX-License-Identifier: Apache-2.0
"""Pydantic models of the kinds of ``simyard.dev/v1alpha1``; ``crds/`` is generated from them."""
