"""The emulated cloud at work: the model, its clock, its guests, and its clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import batched
from pathlib import Path

from simyard_sites.base import Gone, Machine, MachineNotFoundError, MachineRequest, Outcome, PowerAction, SiteError
from simyard_sites.emulated import VERSION, protocol
from simyard_sites.emulated.cloud import Cloud, GuestOrder
from simyard_sites.emulated.guests import Disks, GuestListener, Guests
from simyard_sites.emulated.protocol import Batch, BatchKind, Outcomes, Reply, Welcome
from simyard_sites.emulated.settings import GuestKind, Settings

_LOG = logging.getLogger(__name__)
_IDS_AT_ONCE = 1000

MakeGuests = Callable[[GuestListener], Mapping[GuestKind, Guests]]
