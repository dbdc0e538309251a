# SPDX-License-Identifier: Apache-2.0
"""Files of simulations in an object store: addresses, signed URLs, and the store's S3 API."""
