# SPDX-License-Identifier: Apache-2.0
"""Translates OpenNebula's refusals, codes and texts, into errors of the site interface.

The code 0x0200 means a quota or a missing right, and other codes have several causes too. If a code is ambiguous, the
error follows from the text. The texts are those of OpenNebula 5.12 and later.
"""

from __future__ import annotations

import re

from pyone import (
    OneActionException,
    OneAuthenticationException,
    OneAuthorizationException,
    OneInternalException,
    OneNoExistsException,
)

from simyard_sites.base import (
    CapacityExhaustedError,
    ConflictError,
    ErrorScope,
    InternalError,
    InvalidSpecError,
    MachineNotFoundError,
    PermissionDeniedError,
    QuotaExhaustedError,
    SiteError,
    UnauthenticatedError,
    UnavailableError,
)
from simyard_sites.opennebula.settings import PATH
from simyard_sites.opennebula.wire import OneAllocateException, OneLockedException

_QUOTA = re.compile(r"limit of|quota", re.IGNORECASE)
_RESTRICTED = re.compile(r"restricted attribute", re.IGNORECASE)
_LEASES = re.compile(r"(cannot|could not) get .*lease|no free (address|lease)", re.IGNORECASE)
_DISK = re.compile(r"DISK (\d+): ")
_IMAGE = re.compile(r"image|disk", re.IGNORECASE)
_USE_IMAGE = re.compile(r"Not authorized to perform USE IMAGE")
_NETWORK = re.compile(r"network|\bnic\b", re.IGNORECASE)
_SIZE = re.compile(r"\b(CPU|VCPU|MEMORY) attribute must be")
_METHOD = re.compile(r"^\[[\w.]+\]\s*")
_NO_LEADER = re.compile(r"not (the )?leader|replicat|no leader", re.IGNORECASE)


def make_creation_error(error: Exception, image: str = "") -> SiteError:
    """Return the error of a machine that was not created; ``image`` is the service's image, "" if it names none.

    The function first checks if the text is about a disk or a size: such a text contains names that users chose, and an
    image can have the name ``network``.
    """
    said = _strip_method(error)
    if isinstance(error, OneAllocateException | OneInternalException | OneActionException):
        if disk := _DISK.search(said):
            return _bad_image(said) if image and disk[1] == "0" else _bad_template(said)
        if _SIZE.search(said):
            return InvalidSpecError(f"spec.resources of the SimulationService or the Worker: {said}")
        if _LEASES.search(said):
            return CapacityExhaustedError(f"{said} Give the network a larger address range, or use another network")
        if isinstance(error, OneInternalException) and "parse error" not in said.lower():
            return InternalError(said)
        return _invalid(said)
    if isinstance(error, OneNoExistsException):
        return _invalid(said)
    if image and isinstance(error, OneAuthorizationException) and _USE_IMAGE.search(said):
        return PermissionDeniedError(
            f"spec.images.openNebula of the SimulationService: {said} Name an image that the site's account may USE, "
            "or give it that right (oneimage chmod)",
            scope=ErrorScope.POOL,
        )
    return make_call_error(error, "create VMs, and USE its template, images and networks")


def make_change_error(error: Exception, right: str) -> SiteError:
    """Return the error of a machine that was not deleted, stopped, started, ..."""
    if isinstance(error, OneNoExistsException):
        return MachineNotFoundError(str(error))
    if isinstance(error, OneActionException | OneLockedException):
        return ConflictError(str(error))
    return make_call_error(error, right)


def make_call_error(error: Exception, right: str) -> SiteError:
    """Return the error of any refused call; ``right`` is the right that it needs."""
    said = _strip_method(error)
    if isinstance(error, OneAuthenticationException):
        return UnauthenticatedError(
            f"{PATH}.credentialsSecretRef: {said} Put the `username` and the `password` (or a `token` that has not "
            "expired) of OpenNebula into the Secret"
        )
    if isinstance(error, OneAuthorizationException):
        return _denied(said, right)
    if _NO_LEADER.search(said):
        return UnavailableError(f"{PATH}.endpoint: {said}: set it to the address of the cluster's leader")
    if isinstance(error, OneLockedException):
        return ConflictError(said)
    return InternalError(said)


def _denied(said: str, right: str) -> SiteError:
    if _RESTRICTED.search(said):
        return PermissionDeniedError(
            f"{PATH}.template: {said} Only oneadmin's group may set it (VM_RESTRICTED_ATTR in oned.conf): remove it "
            "from the template, or allow it in oned.conf"
        )
    if _QUOTA.search(said):
        return QuotaExhaustedError(f"{said} Raise the quota of the account or of its group")
    return PermissionDeniedError(f"{PATH}.credentialsSecretRef: {said} The account needs the right to {right}")


def _strip_method(error: Exception) -> str:
    """Return the text without the method name at its start."""
    return _METHOD.sub("", str(error))


def _invalid(said: str) -> InvalidSpecError:
    """Return the error of an impossible request, with the field that the text is about."""
    if _NETWORK.search(said):
        return InvalidSpecError(f"{PATH}.networks: {said}", scope=ErrorScope.SITE)
    return _bad_image(said) if _IMAGE.search(said) else _bad_template(said)


def _bad_image(said: str) -> InvalidSpecError:
    return InvalidSpecError(f"spec.images.openNebula of the SimulationService, or {PATH}.imageOwner: {said}")


def _bad_template(said: str) -> InvalidSpecError:
    return InvalidSpecError(f"{PATH}.template: {said}", scope=ErrorScope.SITE)
