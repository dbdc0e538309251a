# SPDX-License-Identifier: Apache-2.0
"""Sends requests to oned, with deadlines, certificates, a proxy, and few connections."""

from __future__ import annotations

import asyncio
import email.utils
import ssl
import time

import aiohttp
from yarl import URL

from simyard_sites.base import (
    ErrorScope,
    InternalError,
    InvalidSpecError,
    SiteError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
    UnknownOutcomeError,
)
from simyard_sites.opennebula.settings import PATH, Settings

READ_SECONDS = 12.0
WRITE_SECONDS = 90.0
CONNECT_SECONDS = 6.0
MAX_ANSWER_BYTES = 2**28
"""Maximum size of an answer in bytes. An answer about 100,000 machines has about half of it."""
_HEADERS = {"Content-Type": "text/xml", "User-Agent": "simyard", "Accept-Encoding": "identity"}
_OK = 200
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_SKEW_SECONDS = 2.0
"""The accuracy of the comparison of clocks: the ``Date`` of an answer has whole seconds."""


class Transport:
    """The connections to one endpoint.

    oned serves 15 connections and closes each after its answer; further connections of all clients wait in its backlog.
    The transport therefore opens at most ``settings.connections``, and reserves one of them for polls.
    ``connect_seconds`` is the time limit for a connection, ``max_answer_bytes`` the maximum size of an answer.

    Raises:
        InvalidSpecError: The proxy is not a URL, or the Secret's certificate is not valid.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self._connect_seconds = connect_seconds
        self._max_answer_bytes = max_answer_bytes
        self._url = URL(settings.endpoint)
        self._ssl = _tls(settings) if self._url.scheme == "https" else True
        self._proxy = URL(settings.proxy) if settings.proxy else None
        if self._proxy is not None and (self._proxy.scheme not in ("http", "https") or not self._proxy.host):
            raise InvalidSpecError(f"{PATH}.proxy: {settings.proxy!r} is not an http URL", scope=ErrorScope.SITE)
        login = settings.proxy_username and aiohttp.encode_basic_auth(settings.proxy_username, settings.proxy_password)
        self._login = {"Proxy-Authorization": login} if login else {}
        self._open = asyncio.Semaphore(settings.connections)
        self._writing = asyncio.Semaphore(max(1, settings.connections - 1))
        self._session: aiohttp.ClientSession | None = None
        self._skew = 0.0

    def get_time(self) -> float:
        """Return the time in seconds since the epoch by the site's clock, computed from the ``Date`` of its answers."""
        return time.time() + self._skew

    async def post(self, body: bytes, *, changes: bool) -> bytes:
        """Send a request and return the body of its answer; ``changes`` is true if the request may change something.

        Raises:
            UnavailableError: No connection was possible; nothing was done.
            UnknownOutcomeError: The request ``changes`` something, and its answer was lost.
            SiteError: The server is not OpenNebula, or cannot be trusted.
        """
        if not changes:
            return await self._post(body, READ_SECONDS, changes=False)
        async with self._writing:
            return await self._post(body, WRITE_SECONDS, changes=True)

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, body: bytes, seconds: float, *, changes: bool) -> bytes:
        async with self._open:
            try:
                async with asyncio.timeout(seconds), self._exchange(body) as response:
                    if response.status != _OK:
                        raise self._refused(response, changes)
                    self._note_time(response)
                    return await self._read(response, changes)
            except aiohttp.ClientSSLError as error:
                raise UnavailableError(
                    f"{PATH}.endpoint: no TLS connection to {self._url.host}: {error}. The certificate must be "
                    "for this host name; for an own authority, store its certificate in the Secret's key `ca.crt`"
                ) from error
            except aiohttp.ClientHttpProxyError as error:
                raise UnavailableError(
                    f"{PATH}.proxy: {self._proxy} refused with {error.status} {error.message}; check the Secret's keys "
                    "`proxyUsername` and `proxyPassword`"
                ) from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._lost(error, seconds, changes) from error

    def _exchange(self, body: bytes) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=self._ssl)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_seconds)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, headers=_HEADERS, auto_decompress=False
            )
        # With TLS, the proxy reads the tunnel request, and oned must not see its login; without TLS, it reads this
        # request.
        inside = {} if self._url.scheme == "https" else self._login
        return self._session.post(
            self._url, data=body, proxy=self._proxy, proxy_headers=self._login, headers=inside, allow_redirects=False
        )

    async def _read(self, response: aiohttp.ClientResponse, changes: bool) -> bytes:
        """Return the body. Raise an error if it is compressed (a kilobyte could become gigabytes) or too long."""
        problem, body = "", bytearray()
        if (encoding := response.headers.get("Content-Encoding", "identity").lower()) != "identity":
            problem = f"its answer is compressed ({encoding[:20]!r}), although the request did not allow it"
        else:
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > self._max_answer_bytes:
                    problem = f"its answer has more than {self._max_answer_bytes} bytes"
                    break
        if not problem:
            return bytes(body)
        if changes:
            raise UnknownOutcomeError(f"cannot read the answer of {self._url}: {problem}")
        raise make_endpoint_error(problem)

    def _lost(self, error: Exception, seconds: float, changes: bool) -> SiteError:
        what = str(error)
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            limit = f"{self._connect_seconds:.0f} s"
            what = f"no connection within {limit}; check that the port serves {self._url.scheme}"
        elif isinstance(error, TimeoutError):
            what = f"it was silent for {seconds:.0f} s"
        place = f"{PATH}.proxy: {self._proxy}" if isinstance(error, aiohttp.ClientProxyConnectionError) else None
        if changes and not isinstance(error, _NOT_SENT):
            return UnknownOutcomeError(f"the answer of {self._url} was lost: {what or type(error).__name__}")
        return UnavailableError(f"{place or f'{PATH}.endpoint: {self._url}'} does not answer: {what}")

    def _refused(self, response: aiohttp.ClientResponse, changes: bool) -> SiteError:
        said = f"{self._url} answered {response.status} {response.reason}"
        match response.status:
            case 401 | 403:
                return UnauthenticatedError(
                    f"{PATH}.endpoint: {said}: a proxy in front of OpenNebula requires a login, which is not possible"
                )
            case 407:
                return UnauthenticatedError(
                    f"{PATH}.proxy: {self._proxy} requires `proxyUsername` and `proxyPassword` in the Secret"
                )
            case 429 | 503:
                return ThrottledError(said, retry_after_seconds=_retry_after(response))
            case 500 | 502 | 504:
                return UnknownOutcomeError(said) if changes else UnavailableError(f"{PATH}.endpoint: {said}")
            case status if 300 <= status < 400:
                where = _place(response.headers.get("Location", ""))
                return make_endpoint_error(
                    f"{said} and redirects to {where}. The redirect is not followed, because it would receive the "
                    "credentials: if it is the right endpoint, set it as the endpoint"
                )
            case status if status < 500:
                return make_endpoint_error(f"{said}; OpenNebula's path is /RPC2")
        return InternalError(said)

    def _note_time(self, response: aiohttp.ClientResponse) -> None:
        try:
            skew = email.utils.parsedate_to_datetime(response.headers["Date"]).timestamp() - time.time()
        except (KeyError, ValueError):
            return
        self._skew = skew if abs(skew) > _SKEW_SECONDS else 0.0


def make_endpoint_error(problem: str) -> InvalidSpecError:
    """Return the error of an endpoint that is not OpenNebula."""
    return InvalidSpecError(
        f"{PATH}.endpoint: the server is not OpenNebula's XML-RPC API: {problem}", scope=ErrorScope.SITE
    )


def _place(location: str) -> str:
    """Return the target of a redirect without parts that may be secret."""
    try:
        url = URL(location)
    except ValueError:
        return "nowhere"
    return str(url.with_user(None).with_query(None).with_fragment(None))[:200] if url.host else url.path[:200]


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    try:
        return max(0.0, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return None


def _tls(settings: Settings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=settings.ca_certificate or None)
    except ssl.SSLError as error:
        raise InvalidSpecError(
            f"{PATH}.credentialsSecretRef: the key `ca.crt` is not a certificate in PEM: {error}", scope=ErrorScope.SITE
        ) from error
