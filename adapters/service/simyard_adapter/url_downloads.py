# SPDX-License-Identifier: Apache-2.0
"""Download of a file from a URL that a user gave, where the platform team allows the URL.

The server is not the platform's, so nothing that it says is trusted. Each redirection must lead to an allowed URL as
well. TLS proves that the answer comes from the named host, so a host name that leads into the worker's own network
reaches no other server. The size is limited while the bytes arrive. A cut connection costs no bytes if the server names
the version of the content (a strong ETag); otherwise the download begins again.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import ssl
from pathlib import Path
from typing import BinaryIO, Callable, Iterator, Mapping, Optional
from urllib.parse import urljoin

from simyard_adapter.digests import Digester, FileDigest
from simyard_adapter.file_urls import AllowedUrls, describe_url
from simyard_adapter.transfers import RETRYABLE, LostError, TransferError, Transfers, read_response

MAX_REDIRECTIONS = 5
_REDIRECTIONS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "simyard-adapter"}
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:(\d+)|\*)")
_STRONG_TAG = re.compile(r'"[!#-~]*"')


class TooLargeError(TransferError):
    """A content that is larger than its parameter permits."""


class UrlDownload:
    """The download of one URL into one file, which does not exist before."""

    def __init__(self, transfers: Transfers, url: str, allowed: AllowedUrls, max_bytes: int) -> None:
        """Prepare; ``max_bytes`` is the largest size of the content."""
        self._transfers = transfers
        self._url = url
        self._allowed = allowed
        self._max_bytes = max_bytes
        self._digester = Digester()
        self._received = 0
        self._total: Optional[int] = None
        self._farthest = 0
        self._tag = ""

    def run(self, path: Path, on_bytes: Callable[[int], None]) -> FileDigest:
        """Download, and return the digest of the content; ``on_bytes`` is called with the size of each block.

        Raises:
            TooLargeError: The content has more than ``max_bytes``.
            TransferError: The server refuses, redirects to a URL that is not allowed, or made no progress for too long.
            OSError: The file cannot be written.
        """
        what = f"download from {describe_url(self._url)}"
        with path.open("xb") as file:
            try:
                self._transfers.retry(what, lambda: self._attempt(file, on_bytes), lambda: self._farthest)
                file.flush()
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        return self._digester.finish()

    def _attempt(self, file: BinaryIO, on_bytes: Callable[[int], None]) -> None:
        headers = dict(_HEADERS)
        if self._received and self._tag:
            headers |= {"Range": f"bytes={self._received}-", "If-Range": self._tag}
        try:
            with self._open(headers) as response:
                self._begin(file, response)
                for block in read_response(response):
                    if self._received + len(block) > self._max_bytes:
                        raise TooLargeError(f"has more than {self._max_bytes} bytes")
                    file.write(block)
                    self._digester.update(block)
                    self._received += len(block)
                    self._farthest = max(self._farthest, self._received)
                    on_bytes(len(block))
                if self._total is not None and self._received != self._total:
                    raise LostError(f"the server sent {self._received} of {self._total} bytes")
        except ssl.SSLCertVerificationError as error:
            raise TransferError(f"{describe_url(self._url)}: the certificate is not valid: {error}") from None

    def _begin(self, file: BinaryIO, response: http.client.HTTPResponse) -> None:
        """Continue the file if the server does so, or begin it again."""
        if response.status == http.client.PARTIAL_CONTENT and self._received and self._continues(response):
            return
        if response.status != http.client.OK:
            self._tag = ""
            raise LostError(f"the server answers {response.status} to a request for the rest of the content")
        if response.length is None and not response.chunked:
            raise TransferError(f"{describe_url(self._url)}: the server does not say where the content ends")
        if (response.length or 0) > self._max_bytes:
            raise TooLargeError(f"has {response.length} bytes, at most {self._max_bytes} are accepted")
        tag = response.headers.get("ETag", "")
        self._tag = tag if _STRONG_TAG.fullmatch(tag) else ""
        self._digester, self._received, self._total = Digester(), 0, response.length
        file.seek(0)
        file.truncate()

    def _continues(self, response: http.client.HTTPResponse) -> bool:
        """Return whether a part of the content begins where the file ends, and the size of all of it is known."""
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != self._received:
            return False
        total = int(found[2]) if found[2] else self._total
        if self._total is None:
            self._total = total
        return total is not None and total == self._total

    @contextlib.contextmanager
    def _open(self, headers: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
        """Send the request, follow redirections to allowed URLs, and return the response."""
        url = self._url
        for _ in range(MAX_REDIRECTIONS + 1):
            with self._transfers.exchange("GET", url, headers, None) as response:
                status = response.status
                if status not in _REDIRECTIONS:
                    if status in RETRYABLE:
                        raise LostError(f"the server answers {status} {response.reason[:100]}")
                    if status not in (200, 206, 416):
                        raise TransferError(f"{describe_url(url)}: the server answers {status} {response.reason[:100]}")
                    yield response
                    return
                target = urljoin(url, response.headers.get("Location", ""))
            if problem := self._allowed.find_problem(target):
                raise TransferError(f"{describe_url(url)} redirects to {describe_url(target)}, which {problem}")
            url = target
        raise TransferError(f"{describe_url(self._url)} redirects more than {MAX_REDIRECTIONS} times")
