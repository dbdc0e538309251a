# SPDX-License-Identifier: Apache-2.0
"""Carries out the plans: starts, watches and stops workers in bulk, and keeps every status true."""
