# SPDX-License-Identifier: Apache-2.0
"""Upload and download of files with signed URLs, over HTTP and without further libraries.

A transfer reads and writes blocks of 512 KiB, so a file of any size needs little memory. A cut connection costs only
the bytes of one block on download (the rest is requested with ``Range``), and one part of 64 MiB on upload. A transfer
stalls only if it makes no progress for :data:`STALL_SECONDS`; a download can wait then and continue where it was. The
store verifies an upload; a download is verified here, and the file gets its name only afterwards. A thread computes the
digest of a block while the next block arrives.

URLs are secrets: no error message contains one.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import http.client
import re
import secrets
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, TypeVar
from urllib.parse import urlsplit

from simyard_adapter.backoff import draw_delay
from simyard_adapter.digests import Digester, FileDigest, read_blocks

STALL_SECONDS = 120.0
"""Time without progress after which a transfer fails."""
SOCKET_SECONDS = 30.0
"""Time without an answer after which a connection counts as lost."""
PART_SECONDS = 1.0
"""Time that the store has for each part, in addition, to complete an upload: some servers copy all parts then."""
MAX_PAUSE_SECONDS = 10.0
_MAX_ANSWER_BYTES = 64 * 1024
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Errors of the own disk, which no further attempt repairs."""
_ERROR_DOCUMENT = re.compile(rb"<Error[\s>]")
RETRYABLE = frozenset({408, 409, 429, 500, 502, 503, 504, 507})

T = TypeVar("T")


class TransferError(Exception):
    """A transfer that failed for good; the message has the cause, and no URL."""


class StalledError(TransferError):
    """A transfer that made no progress for too long; the store may be back later."""


class ExpiredError(TransferError):
    """A signed URL that is no longer valid; the transfer can continue with a new one."""


class UploadEndedError(TransferError):
    """An upload in parts that the store does not know: it was completed, or aborted."""


class StoppedError(TransferError):
    """A transfer that was stopped (:meth:`Transfers.stop`)."""


class LostError(Exception):
    """A connection that was lost, or a server that asks for a later attempt."""


@dataclass(frozen=True)
class SignedRequest:
    """An HTTP request that the platform has signed.

    Attributes:
        method: The method.
        url: The URL, which is a secret.
        headers: The headers that the request must have.
        offset: The position of the request's body in the file.
        size: The number of bytes of the request's body.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    offset: int = 0
    size: int = 0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "SignedRequest":
        """Read a request as the platform sends it.

        Raises:
            ValueError: A field is missing or has another type.
        """
        try:
            headers = {str(name): str(value) for name, value in (data.get("headers") or {}).items()}
            return cls(
                str(data["method"]),
                str(data["url"]),
                headers,
                int(data.get("offset") or 0),
                int(data.get("bytes") or 0),
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"the platform sent an unreadable signed request: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return the request as the platform sends it."""
        data: dict[str, Any] = {"method": self.method, "url": self.url}
        if self.headers:
            data["headers"] = dict(self.headers)
        if self.size:
            data |= {"offset": self.offset, "bytes": self.size}
        return data


class Transfers:
    """Uploads and downloads of one process; every method may be called from any thread.

    ``on_bytes`` of each method receives the number of bytes that were moved since its last call. A negative number
    takes back bytes that have to be sent again. An exception of ``on_bytes`` ends the transfer.
    """

    def __init__(
        self,
        ca_certificate: Optional[str] = None,
        *,
        stall_seconds: float = STALL_SECONDS,
        socket_seconds: float = SOCKET_SECONDS,
        sleep: Optional[Callable[[float], object]] = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up; ``ca_certificate`` (PEM) signed the store's certificate, None means the system's authorities."""
        self._context = ssl.create_default_context(cadata=ca_certificate or None)
        self._stall_seconds = stall_seconds
        self._socket_seconds = socket_seconds
        self._stopped = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._sleep = sleep or self._stopped.wait
        self._clock = clock

    def stop(self) -> None:
        """End all transfers with :class:`StoppedError`, also those that wait for the store, and begin no others.

        A transfer that is about to connect ends after at most :data:`SOCKET_SECONDS`.
        """
        self._stopped.set()
        with self._lock:
            for connected in self._sockets:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connected, socket.SHUT_RDWR)  # wakes the thread that reads or writes

    def upload(self, request: SignedRequest, path: Path, on_bytes: Callable[[int], None]) -> str:
        """Send the request's part of a file, and return the ETag that the store gave it.

        A part that the store has already (the request forbids to overwrite it) counts as sent; its ETag is empty.

        Raises:
            ExpiredError: The URL has expired.
            TransferError: The store refused the content, or there was no progress for too long.
        """
        farthest = 0

        def attempt() -> str:
            nonlocal farthest
            sent = 0
            try:
                with path.open("rb") as file:
                    file.seek(request.offset)

                    def body() -> Iterator[bytes]:
                        nonlocal sent, farthest
                        for block in read_blocks(file, request.size):
                            yield block
                            sent += len(block)
                            farthest = max(farthest, sent)
                            on_bytes(len(block))

                    headers = {**request.headers, "content-length": str(request.size)}
                    with self.exchange(request.method, request.url, headers, body()) as response:
                        answer = response.read(_MAX_ANSWER_BYTES)
                        if response.status == http.client.PRECONDITION_FAILED:
                            return ""
                        _check(response, answer)
                        return response.headers.get("ETag", "")
            except BaseException:
                on_bytes(-sent)
                raise

        return self.retry("upload", attempt, lambda: farthest)

    def complete(self, request: SignedRequest, digest: FileDigest, etags: Mapping[int, str]) -> None:
        """End an upload in parts; ``etags`` has the ETag of each part by its number, from 1.

        Raises:
            ExpiredError: The URL has expired.
            UploadEndedError: The upload is completed, perhaps by an earlier attempt whose answer was lost, or aborted.
            TransferError: The store refused the parts.
        """
        body = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{etags[number]}</ETag>"
            f"<ChecksumSHA256>{base64.b64encode(part).decode()}</ChecksumSHA256></Part>"
            for number, part in enumerate(digest.parts, 1)
        )
        document = f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode()

        def attempt() -> None:
            headers = {**request.headers, "content-length": str(len(document))}
            with self.exchange(request.method, request.url, headers, iter((document,)), len(etags)) as response:
                answer = response.read(_MAX_ANSWER_BYTES)
                if response.status != http.client.PRECONDITION_FAILED:
                    _check(response, answer)
                    # A store can answer 200 and then fail: the error is in the body (CompleteMultipartUpload, S3).
                    if _ERROR_DOCUMENT.search(answer):
                        raise LostError(_read_error(answer))

        self.retry("upload", attempt)

    def download(
        self,
        get_request: Callable[[], SignedRequest],
        path: Path,
        address: str,
        on_bytes: Callable[[int], None],
        on_stall: Optional[Callable[[StalledError], None]] = None,
    ) -> FileDigest:
        """Download a file, verify its digest, and give it its name.

        ``get_request`` returns a valid request; it is called again when a URL has expired. ``on_stall`` is called when
        the download makes no progress. The download continues when ``on_stall`` returns; without it, the download ends.

        Raises:
            TransferError: The store refused, the content has another digest, or there was no progress for too long.
            OSError: The file cannot be written.
        """
        partial = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")
        digester = Digester()
        received = 0
        request = get_request()
        try:
            with partial.open("xb") as file, ThreadPoolExecutor(1) as executor:
                hashing = executor.submit(digester.update, b"")

                def attempt() -> None:
                    nonlocal received, hashing
                    headers = {**request.headers, **({"Range": f"bytes={received}-"} if received else {})}
                    with self.exchange(request.method, request.url, headers, None) as response:
                        if received and response.status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                            return
                        if response.status not in (200, 206):
                            _check(response, response.read(_MAX_ANSWER_BYTES))
                        if received and response.status == http.client.OK:
                            raise TransferError("the file store does not continue a download where it was cut")
                        for block in read_response(response):
                            file.write(block)
                            hashing.result()
                            hashing = executor.submit(digester.update, block)
                            received += len(block)
                            on_bytes(len(block))

                while True:
                    try:
                        self.retry("download", attempt, lambda: received)
                        break
                    except ExpiredError:
                        request = get_request()
                    except StalledError as error:
                        if on_stall is None:
                            raise
                        on_stall(error)
                digest = executor.submit(digester.finish).result()
            if digest.address != address:
                raise TransferError(f"the downloaded content has the digest {digest.address}, not {address}")
            partial.replace(path)
            return digest
        finally:
            partial.unlink(missing_ok=True)

    def retry(self, what: str, attempt: Callable[[], T], progress: Callable[[], int] = lambda: 0) -> T:
        """Repeat an attempt while connections are lost, until it makes no progress for too long.

        ``what`` names the transfer in errors. ``progress`` returns a number that grows while bytes are moved.

        Raises:
            StalledError: There was no progress for too long.
            StoppedError: The transfer was stopped.
        """
        failures, moved, since = 0, progress(), self._clock()
        while True:
            if self._stopped.is_set():
                raise StoppedError(f"the {what} was stopped")
            try:
                return attempt()
            except (LostError, OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
                    raise
                if progress() > moved:
                    failures, moved, since = 0, progress(), self._clock()
                if self._clock() - since >= self._stall_seconds:
                    raise StalledError(
                        f"the {what} made no progress for {self._stall_seconds:g} s: {_describe(error)}"
                    ) from None
                self._sleep(draw_delay(failures, MAX_PAUSE_SECONDS))
                failures += 1

    @contextlib.contextmanager
    def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: Optional[Iterator[bytes]], parts_to_join: int = 0
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request and return the response; the connection is closed at the end of the block."""
        timeout = self._socket_seconds + parts_to_join * PART_SECONDS
        parts = urlsplit(url)
        default = 443 if parts.scheme == "https" else 80  # without a port, http.client reads one from an IPv6 address
        host, port = parts.hostname or "", default if parts.port is None else parts.port
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        connected: Optional[socket.socket] = None
        try:
            connection.connect()
            connected = connection.sock
            with self._lock:
                self._sockets.add(connected)
            if self._stopped.is_set():
                raise LostError("the transfer was stopped")
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # The store may refuse the request before it has read all of it: its answer tells why.
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request(method, target, body, dict(headers))
            yield connection.getresponse()
        finally:
            with self._lock:
                self._sockets.discard(connected)
            connection.close()


def read_response(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the body in blocks; raise an error if it ends too early."""
    left = response.length
    for block in read_blocks(response):
        if left is not None:
            left -= len(block)
        yield block
    if left:
        raise LostError(f"the connection ended {left} bytes too early")


def _check(response: http.client.HTTPResponse, answer: bytes) -> None:
    """Raise the error that belongs to a response that is no success."""
    if 200 <= response.status < 300:
        return
    problem = f"{response.status} {_read_error(answer)}"
    if response.status in RETRYABLE:
        raise LostError(problem)
    if response.status == http.client.FORBIDDEN and b"xpired" in answer:
        raise ExpiredError("the signed URL has expired")
    if response.status == http.client.NOT_FOUND and b"NoSuchUpload" in answer:
        raise UploadEndedError("the file store does not know the upload in parts: it was completed or aborted")
    raise TransferError(f"the file store refused the request: {problem}")


def _read_error(answer: bytes) -> str:
    """Return the code and the message of an error document of S3."""
    found = (re.search(rb"<%s>([^<]{0,300})<" % name, answer) for name in (b"Code", b"Message"))
    return ": ".join(match[1].decode(errors="replace") for match in found if match)


def _describe(error: BaseException) -> str:
    return str(error) or type(error).__name__
