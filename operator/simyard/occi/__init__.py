# SPDX-License-Identifier: Apache-2.0
"""OCCI without I/O: model, renderings and checks of requests (1.1: GFD.183 to GFD.185; 1.2: GFD.221 to GFD.229)."""
