# SPDX-License-Identifier: Apache-2.0
"""The operator's work: it carries out the plans, starts, watches and stops workers in bulk, and writes all statuses."""
