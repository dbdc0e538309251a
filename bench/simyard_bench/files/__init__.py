# SPDX-License-Identifier: Apache-2.0
"""Measure transfers of files through the platform, and compare them with a bare S3 client at the same server."""
