# SPDX-License-Identifier: Apache-2.0
"""OCCI over AMQP, and foreign service adapters: the Cloud4E binding."""
