# SPDX-License-Identifier: Apache-2.0
"""Use of RabbitMQ: its users, permissions and queues; requests to workers; and the events and liveness of workers."""
