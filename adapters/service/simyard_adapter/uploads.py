# SPDX-License-Identifier: Apache-2.0
"""The upload of one file, in one request or in parts, with offers of the platform.

The same code runs in workers, which get offers over the broker, and in clients, which get them from the API.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Optional

from simyard_adapter.digests import FileDigest
from simyard_adapter.transfers import ExpiredError, SignedRequest, Transfers

MAX_PARALLEL_PARTS = 2
"""Parts that are sent at the same time; more did not make an upload faster on one machine."""
MAX_OFFERS = 1000
"""The largest number of offers for one file: an upload that gets no further ends."""


@dataclass(frozen=True)
class UploadOffer:
    """The platform's answer to a request to upload a file.

    Attributes:
        present: True if the store has the file already; there is nothing to send then.
        upload_id: The id of an upload in parts; empty if one request sends the whole file.
        requests: The requests that send the file, or the next parts that the store does not have.
        etags: The ETag of each part that the store has already, by the part's number from 1.
        complete: The request that ends an upload in parts.
        expires: The time at which the requests expire, as RFC 3339; empty if there are none.
    """

    present: bool
    upload_id: str = ""
    requests: tuple[SignedRequest, ...] = field(default=(), repr=False)
    etags: Mapping[int, str] = field(default_factory=dict)
    complete: Optional[SignedRequest] = field(default=None, repr=False)
    expires: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "UploadOffer":
        """Read an offer as the platform sends it: ``status`` of a File.

        Raises:
            ValueError: A field has another type.
        """
        if data.get("present"):
            return cls(True)
        upload = data.get("upload")
        if not isinstance(upload, Mapping) or not isinstance(upload.get("requests"), list):
            raise ValueError("the platform sent an unreadable offer for an upload")
        complete, sent = upload.get("complete"), upload.get("sentParts") or []
        try:
            etags = {int(part["number"]): str(part["etag"]) for part in sent}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the platform sent an unreadable list of sent parts: {error}") from None
        return cls(
            False,
            str(upload.get("id") or ""),
            tuple(SignedRequest.from_json(item) for item in upload["requests"]),
            etags,
            SignedRequest.from_json(complete) if isinstance(complete, Mapping) else None,
            str(upload.get("expiresTime") or ""),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the offer as the platform sends it."""
        if self.present:
            return {"present": True}
        upload: dict[str, Any] = {"requests": [request.to_json() for request in self.requests]}
        if self.upload_id:
            upload["id"] = self.upload_id
        if self.etags:
            upload["sentParts"] = [{"number": number, "etag": etag} for number, etag in sorted(self.etags.items())]
        if self.complete is not None:
            upload["complete"] = self.complete.to_json()
        if self.expires:
            upload["expiresTime"] = self.expires
        return {"present": False, "upload": upload}


GetOffer = Callable[[str, int], UploadOffer]
"""Ask the platform for an offer. Arguments: the id of the upload to continue ("" for none), and the first part."""


def upload_file(
    transfers: Transfers,
    path: Path,
    digest: FileDigest,
    get_offer: GetOffer,
    on_bytes: Callable[[int], None],
) -> None:
    """Upload a file, unless the store has it already.

    Raises:
        TransferError: The store refused the content, or there was no progress for too long.
    """
    offer = get_offer("", 1)
    if offer.present:
        on_bytes(digest.size)
        return
    if offer.complete is None:
        _send_whole(transfers, path, offer, get_offer, on_bytes)
        return
    etags: dict[int, str] = {}
    with ThreadPoolExecutor(MAX_PARALLEL_PARTS) as executor:
        for _ in range(MAX_OFFERS):
            first = len(etags) + 1

            def send(place: int, request: SignedRequest, first: int = first) -> tuple[int, str]:
                return first + place, transfers.upload(request, path, on_bytes)

            try:
                etags.update(executor.map(send, range(len(offer.requests)), offer.requests))
                if len(etags) >= len(digest.parts):
                    assert offer.complete is not None, "each offer in parts has it"
                    transfers.complete(offer.complete, digest, etags)
                    return
            except ExpiredError:
                pass
            offer = get_offer(offer.upload_id, len(etags) + 1)
            if offer.present:
                return
    raise ExpiredError("the signed URLs expired before the file was sent")


def _send_whole(
    transfers: Transfers, path: Path, offer: UploadOffer, get_offer: GetOffer, on_bytes: Callable[[int], None]
) -> None:
    while offer.requests:
        try:
            transfers.upload(offer.requests[0], path, on_bytes)
            return
        except ExpiredError:
            offer = get_offer("", 1)
