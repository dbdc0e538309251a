# SPDX-License-Identifier: Apache-2.0
"""OCCI frontends: HTTP and AMQP servers over the same handlers, which answer from local copies of Simyard's objects."""
