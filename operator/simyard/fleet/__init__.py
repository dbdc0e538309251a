# SPDX-License-Identifier: Apache-2.0
"""Carries out what the plans say: starts, watches and stops workers in bulk, and keeps every status true."""
