# SPDX-License-Identifier: Apache-2.0
"""Parts that the aggregated apiserver and the OCCI frontends share: objects, values, worker requests, authorization."""
