# SPDX-License-Identifier: Apache-2.0
"""Pure readers of workers' messages into types: the only way of a worker's bytes into the control plane."""
