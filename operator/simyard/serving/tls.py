# SPDX-License-Identifier: Apache-2.0
"""Keeps the TLS settings of a server, and replaces its certificate and the CA of its clients while it runs."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0


class ServingTls:
    """The TLS settings of a server, which passes ``context`` to its listener.

    Every handshake uses the newest certificate and CA.

    When a client connects, the class checks the files for changes, at most once a second. If it cannot read new files,
    it logs the error and keeps the old certificate. A client may connect without a certificate, but not with a
    certificate of another CA. Without ``client_certificates``, the server does not ask clients for a certificate.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        client_certificates: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = (certificate, key)
        self._client_certificates = client_certificates
        self._clock = clock
        self._client_ca = ""
        self._checked_at = clock()
        self._stamp = self._stamps()
        self._current = self._load()
        self.context = self._load()
        self.context.sni_callback = self._choose

    def trust(self, client_ca: str) -> None:
        """Accept client certificates of these authorities (PEM), and no others, from the next handshake on.

        Raises:
            ValueError: the text is not PEM, or the server's own certificate cannot be read.
        """
        before, self._client_ca = self._client_ca, client_ca
        try:
            self._current = self._load()
        except (OSError, ssl.SSLError) as error:
            self._client_ca = before
            raise ValueError(f"the client CA cannot be used: {error}") from error

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        now = self._clock()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            self._reload()
        connection.context = self._current

    def _reload(self) -> None:
        try:
            stamp = self._stamps()
            if stamp != self._stamp:
                self._current, self._stamp = self._load(), stamp
                log.info("serving certificate replaced")
        except (OSError, ssl.SSLError) as error:
            log.error("the new serving certificate cannot be used: %s", error)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files)
        if self._client_certificates:
            # A resumed session would keep a client certificate that was verified against an older CA.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
            context.verify_mode = ssl.CERT_OPTIONAL
        if self._client_ca:
            context.load_verify_locations(cadata=self._client_ca)
        return context

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in (file.stat() for file in self._files))
