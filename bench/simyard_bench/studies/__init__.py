# SPDX-License-Identifier: Apache-2.0
"""Measures studies of tasks that do nothing, beside Dask, Ray and an Indexed Job of Kubernetes."""
