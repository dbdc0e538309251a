# SPDX-License-Identifier: Apache-2.0
"""Adds this folder to the import path, for its builders."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
