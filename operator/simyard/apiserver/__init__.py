# SPDX-License-Identifier: Apache-2.0
"""The stateless server of the aggregated API ``subresources.simyard.dev``: actions, attributes, logs and files."""
