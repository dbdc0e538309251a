# SPDX-License-Identifier: Apache-2.0
"""Pydantic models of the kinds in ``simyard.dev/v1alpha1``; ``make generate`` writes ``crds/`` from them."""
