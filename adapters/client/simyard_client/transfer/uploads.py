# SPDX-License-Identifier: Apache-2.0
# Copied from adapters/service/simyard_adapter by hack/client_copies.py (make generate). Do not edit.
"""The upload of one file, in one request or in parts, with offers of the platform.

The same code runs in workers, which get offers over the broker, and in clients, which get them from the API.
"""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Optional

from simyard_client.transfer.digests import MAX_PARALLEL_PARTS, PART_BYTES, FileDigest, list_parts
from simyard_client.transfer.transfers import ExpiredError, SignedRequest, Transfers, UploadEndedError

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

    A file in parts continues an upload that was begun earlier: parts that the store has are not sent again. If the
    store does not know the upload any more, another attempt or another sender has completed it, or the platform has
    aborted it. A new offer tells which.

    Raises:
        TransferError: The store refused the content, or there was no progress for too long.
    """
    offer = get_offer("", 1)
    etags: dict[int, str] = {}
    with ThreadPoolExecutor(MAX_PARALLEL_PARTS) as executor:
        for _ in range(MAX_OFFERS):
            if offer.present:
                on_bytes(digest.size - _count_bytes(digest, etags))
                return
            if offer.complete is None:
                if _send_whole(transfers, path, offer, on_bytes):
                    return
                offer = get_offer("", 1)
                continue
            known = {number: etag for number, etag in offer.etags.items() if number not in etags}
            etags.update(known)
            on_bytes(_count_bytes(digest, known))
            try:
                _send_parts(transfers, path, offer, executor, etags, on_bytes)
                if len(etags) == len(digest.parts):
                    transfers.complete(offer.complete, digest, etags)
                    return
                offer = get_offer(offer.upload_id, _find_missing(digest, etags))
            except ExpiredError:
                offer = get_offer(offer.upload_id, _find_missing(digest, etags))
            except UploadEndedError:
                on_bytes(-_count_bytes(digest, etags))
                etags.clear()
                offer = get_offer("", 1)
    raise ExpiredError("the signed URLs expired before the file was sent")


def _send_whole(transfers: Transfers, path: Path, offer: UploadOffer, on_bytes: Callable[[int], None]) -> bool:
    """Send a file in one request; return False if the URL has expired."""
    try:
        transfers.upload(offer.requests[0], path, on_bytes)
    except ExpiredError:
        return False
    return True


def _send_parts(
    transfers: Transfers,
    path: Path,
    offer: UploadOffer,
    executor: ThreadPoolExecutor,
    etags: dict[int, str],
    on_bytes: Callable[[int], None],
) -> None:
    """Send the parts of an offer that are not sent yet, and add their ETags."""

    def send(number: int, request: SignedRequest) -> None:
        etags[number] = transfers.upload(request, path, on_bytes)

    numbers = {request.offset // PART_BYTES + 1: request for request in offer.requests}
    sending = [executor.submit(send, *item) for item in numbers.items() if item[0] not in etags]
    if any(item.exception() for item in wait(sending, return_when=FIRST_EXCEPTION).done):
        for item in sending:
            item.cancel()
    errors = [item.exception() for item in wait(sending).done if not item.cancelled()]
    for error in sorted(filter(None, errors), key=lambda error: isinstance(error, ExpiredError)):
        raise error


def _find_missing(digest: FileDigest, etags: Mapping[int, str]) -> int:
    """Return the number of the first part that is not sent yet; 1 if all are sent."""
    return next((number for number in range(1, len(digest.parts) + 1) if number not in etags), 1)


def _count_bytes(digest: FileDigest, numbers: Iterable[int]) -> int:
    """Return the size of these parts of a file together."""
    places = list_parts(digest.size)
    return sum(places[number - 1][1] for number in numbers)
