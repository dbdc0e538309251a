"""Carries requests to oned: deadlines, certificates, proxies, and few connections."""

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
MOST_BYTES = 2**28
"""Of one answer: half of it would be 100,000 machines."""
_HEADERS = {"Content-Type": "text/xml", "User-Agent": "simyard", "Accept-Encoding": "identity"}
_OK = 200
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_SKEW_SECONDS = 2.0
"""The ``Date`` of an answer counts whole seconds; a smaller difference of the clocks cannot be seen."""


class Transport:
    """POSTs to one endpoint.

    oned serves 15 connections and closes each after its answer; what comes beyond waits in its backlog, with that of
    all other clients. So no more than ``settings.connections`` are open, of which changes leave one to the polls.

    Raises:
        InvalidSpecError: the proxy is no URL, or the certificate in the Secret is none.
    """

    def __init__(self, settings: Settings) -> None:
        self._url = URL(settings.endpoint)
        self._ssl = _tls(settings) if self._url.scheme == "https" else True
        self._proxy = URL(settings.proxy) if settings.proxy else None
        if self._proxy is not None and (self._proxy.scheme not in ("http", "https") or not self._proxy.host):
            raise InvalidSpecError(f"{PATH}.proxy: {settings.proxy!r} is no http URL", scope=ErrorScope.SITE)
        login = settings.proxy_username and aiohttp.encode_basic_auth(settings.proxy_username, settings.proxy_password)
        self._login = {"Proxy-Authorization": login} if login else {}
        self._open = asyncio.Semaphore(settings.connections)
        self._writing = asyncio.Semaphore(max(1, settings.connections - 1))
        self._session: aiohttp.ClientSession | None = None
        self._skew = 0.0

    def now(self) -> float:
        """Seconds since the epoch by the clock of the site, as far as its answers have told it."""
        return time.time() + self._skew

    async def post(self, body: bytes, *, changes: bool) -> bytes:
        """Send a request and give the body of its answer. ``changes``: it may change something.

        Raises:
            UnavailableError: nobody answers; nothing was done.
            UnknownOutcomeError: it ``changes`` something, and its answer was lost.
            SiteError: what answers is not OpenNebula, or is not to be trusted.
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
                    f"{PATH}.endpoint: no TLS with {self._url.host}: {error}. The certificate must be for that host "
                    "name; the key `ca.crt` of the Secret names an authority of your own"
                ) from error
            except aiohttp.ClientHttpProxyError as error:
                raise UnavailableError(
                    f"{PATH}.proxy: {self._proxy} refused with {error.status} {error.message}; its login is in the "
                    "keys `proxyUsername` and `proxyPassword` of the Secret"
                ) from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._lost(error, seconds, changes) from error

    def _exchange(self, body: bytes) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=self._ssl)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, headers=_HEADERS, auto_decompress=False
            )
        # Within TLS the proxy reads the request for a tunnel, and is not to be told oned's; without, it reads ours.
        inside = {} if self._url.scheme == "https" else self._login
        return self._session.post(
            self._url, data=body, proxy=self._proxy, proxy_headers=self._login, headers=inside, allow_redirects=False
        )

    async def _read(self, response: aiohttp.ClientResponse, changes: bool) -> bytes:
        """The body, if it is as it was asked for: not packed, for a kilobyte may become gigabytes, and not endless."""
        problem, body = "", bytearray()
        if (encoding := response.headers.get("Content-Encoding", "identity").lower()) != "identity":
            problem = f"its answer is packed ({encoding[:20]!r}), which nobody asked for"
        else:
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MOST_BYTES:
                    problem = f"its answer has more than {MOST_BYTES} bytes"
                    break
        if not problem:
            return bytes(body)
        if changes:
            raise UnknownOutcomeError(f"the answer of {self._url} was not read: {problem}")
        raise not_opennebula(problem)

    def _lost(self, error: Exception, seconds: float, changes: bool) -> SiteError:
        what = str(error)
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            what = f"no connection within {CONNECT_SECONDS:.0f} s; is there {self._url.scheme} at that port?"
        elif isinstance(error, TimeoutError):
            what = f"it was silent for {seconds:.0f} s"
        place = f"{PATH}.proxy: {self._proxy}" if isinstance(error, aiohttp.ClientProxyConnectionError) else None
        if changes and not isinstance(error, _NOT_SENT):
            return UnknownOutcomeError(f"the answer of {self._url} was lost: {what or type(error).__name__}")
        return UnavailableError(f"{place or f'{PATH}.endpoint: {self._url}'} does not answer: {what}")

    def _refused(self, response: aiohttp.ClientResponse, changes: bool) -> SiteError:
        said = f"{self._url} answers {response.status} {response.reason}"
        match response.status:
            case 401 | 403:
                return UnauthenticatedError(f"{PATH}.endpoint: {said}: what stands before OpenNebula wants a login")
            case 407:
                return UnauthenticatedError(f"{PATH}.proxy: {self._proxy} wants `proxyUsername` and `proxyPassword`")
            case 429 | 503:
                return ThrottledError(said, retry_after_seconds=_retry_after(response))
            case 500 | 502 | 504:
                return UnknownOutcomeError(said) if changes else UnavailableError(f"{PATH}.endpoint: {said}")
            case status if 300 <= status < 400:
                where = _place(response.headers.get("Location", ""))
                return not_opennebula(
                    f"{said} and redirects to {where}. That is not followed, because the credentials would go there: "
                    "name the endpoint itself, if it is the right one"
                )
            case status if status < 500:
                return not_opennebula(f"{said}; the path of OpenNebula is /RPC2")
        return InternalError(said)

    def _note_time(self, response: aiohttp.ClientResponse) -> None:
        try:
            skew = email.utils.parsedate_to_datetime(response.headers["Date"]).timestamp() - time.time()
        except (KeyError, ValueError):
            return
        self._skew = skew if abs(skew) > _SKEW_SECONDS else 0.0


def not_opennebula(problem: str) -> InvalidSpecError:
    """The endpoint is wrong."""
    return InvalidSpecError(f"{PATH}.endpoint: that is not OpenNebula's XML-RPC API: {problem}", scope=ErrorScope.SITE)


def _place(location: str) -> str:
    """Where a redirect leads to, without what may be secret in it."""
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
            f"{PATH}.credentialsSecretRef: the key `ca.crt` holds no certificate in PEM: {error}", scope=ErrorScope.SITE
        ) from error
