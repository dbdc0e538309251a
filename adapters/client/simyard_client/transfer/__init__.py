# SPDX-License-Identifier: Apache-2.0
"""Transfers of files with signed URLs: copies of modules of the service adapter, which ``make generate`` writes."""
