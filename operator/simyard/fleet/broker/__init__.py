# SPDX-License-Identifier: Apache-2.0
"""The message broker as the operator administers it: users, queues, credentials and health."""
