# SPDX-License-Identifier: Apache-2.0
"""Commands ``kubectl simyard study``: many calls of one action, as one object."""
