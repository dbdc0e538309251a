# SPDX-License-Identifier: Apache-2.0
"""The operator's administration of the message broker: users, queues, credentials and health."""
