# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ: users, permissions and queues; requests to workers, their events, and their liveness."""
