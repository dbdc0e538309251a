# SPDX-License-Identifier: Apache-2.0
"""What is between us and oned: deadlines, certificates, proxies, wrong endpoints, tokens, connections."""

import asyncio
import datetime
import email.utils
import gzip
import ssl
import time
import xmlrpc.client
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp.web
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from simyard_dev.providers import complete_open_nebula
from simyard_simulators.oned import Code, HttpAnswer
from simyard_sites.base import (
    InvalidSpecError,
    SiteConfig,
    SiteError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
    UnknownOutcomeError,
)
from simyard_sites.opennebula import OpenNebulaSite, transport
from simyard_sites.opennebula.settings import Settings


def certificate(directory: Path, *hosts: str) -> tuple[ssl.SSLContext, str]:
    """A server's context with a certificate that signs itself, and the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "one")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName(host) for host in hosts]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "server.pem").write_bytes(pem + secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    return context, pem.decode()


def login(**keys: str) -> dict[str, str]:
    return {"username": "simyard", "password": "secret"} | keys


def carrier_to(url: str, **limits: Any) -> transport.Transport:
    config = SiteConfig("one", complete_open_nebula(endpoint=url), login())
    return transport.Transport(Settings.from_config(config), **limits)


async def test_tls_needs_the_authority_and_the_name(make_yard: Any, tmp_path: Path) -> None:
    context, authority = certificate(tmp_path, "localhost")
    yard = await make_yard(tls=context)
    url = yard.oned.url.replace("127.0.0.1", "localhost")
    assert (await yard.site(login(**{"ca.crt": authority}), endpoint=url).probe()).version == "OpenNebula 7.0.0"
    for site in (yard.site(endpoint=url), yard.site(login(**{"ca.crt": authority}))):
        with pytest.raises(UnavailableError, match=r"spec\.provider\.openNebula\.endpoint: no TLS .*`ca.crt`"):
            await site.probe()
    with pytest.raises(InvalidSpecError, match=r"`ca.crt` is not a certificate"):
        yard.site(login(**{"ca.crt": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"}), endpoint=url)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda url: url.replace("/RPC2", "/"), "404"),
        (lambda url: url.replace("http:", "https:"), "check that the port serves https"),
        (lambda _: "http://no-such-host.invalid:2633/RPC2", "does not answer"),
        (lambda _: "http://127.0.0.1:1/RPC2", "does not answer"),
    ],
    ids=["path", "scheme", "name", "refused"],
)
async def test_a_wrong_endpoint_is_named(yard: Any, change: Callable[[str], str], says: str) -> None:
    async with aclosing(carrier_to(change(yard.oned.url), connect_seconds=0.5)) as carrier:
        with pytest.raises(SiteError, match=r"spec\.provider\.openNebula\.endpoint") as raised:
            await carrier.post(b"", changes=False)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (HttpAnswer(200, "OK", b"<html><body>nginx</body></html>"), InvalidSpecError, "endpoint: the server is not"),
        (HttpAnswer(301, "Moved"), InvalidSpecError, "301"),
        (HttpAnswer(401, "Unauthorized"), UnauthenticatedError, "login"),
        (HttpAnswer(502, "Bad Gateway"), UnavailableError, "502"),
        (HttpAnswer(429, "Too Many Requests", headers=(("Retry-After", "7"),)), ThrottledError, "429"),
    ],
    ids=["html", "moved", "login", "gateway", "throttled"],
)  # fmt: skip
async def test_what_another_server_answers_is_told_apart(
    yard: Any, answer: HttpAnswer, kind: type[SiteError], says: str
) -> None:
    yard.oned.faults.answer(2, answer)
    with pytest.raises(kind) as raised:
        await yard.site().probe()
    assert says in str(raised.value)
    assert raised.value.retry_after_seconds == (7 if kind is ThrottledError else None)


async def test_an_answer_that_is_too_late_is_unknown_where_it_could_have_changed_something(
    yard: Any, outcomes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = yard.site()
    await yard.create(site, "a")
    yard.oned.faults.pause()
    with monkeypatch.context() as impatient:
        impatient.setattr(transport, "READ_SECONDS", 0.05)
        impatient.setattr(transport, "WRITE_SECONDS", 0.05)
        with pytest.raises(UnavailableError, match="silent"):
            await site.list_owned()
        with pytest.raises(UnknownOutcomeError, match="silent"):
            await outcomes(site.create([yard.request("b")]))
    yard.oned.faults.resume()
    await yard.create(site, "b")
    assert len(await site.list_owned()) == 2


async def test_a_read_that_was_cut_is_made_again_once(yard: Any) -> None:
    site = yard.site()
    yard.oned.faults.close(1)
    await site.list_owned()
    yard.oned.faults.close(2)
    with pytest.raises(UnavailableError):
        await site.list_owned()


@pytest.mark.parametrize("version", ["5.10.5", "4.14.2"])
async def test_an_old_opennebula_is_refused(make_yard: Any, version: str) -> None:
    yard = await make_yard(version=version)
    with pytest.raises(InvalidSpecError, match=rf"OpenNebula {version} is too old; 5.12 or later"):
        await yard.site().probe()


@pytest.mark.parametrize("version", ["5.12.0", "6.10.3", "7.4.0"])
async def test_versions_from_5_12_on_will_do(make_yard: Any, version: str) -> None:
    yard = await make_yard(version=version)
    assert (await yard.site().probe()).version == f"OpenNebula {version}"


@pytest.mark.parametrize(
    "keys", [{}, {"username": "simyard"}, {"password": "secret"}, {"username": "a:b", "token": "c"}]
)
def test_a_secret_that_lacks_a_key_is_said_to(keys: dict[str, str]) -> None:
    with pytest.raises(UnauthenticatedError, match=r"spec\.provider\.openNebula\.credentialsSecretRef"):
        OpenNebulaSite(SiteConfig("one", complete_open_nebula(), keys))


@pytest.mark.parametrize(
    ("provider", "field"),
    [
        ({"endpoint": "one.example.org"}, "endpoint"),
        ({"template": ""}, "template"),
        ({"loginTokenSeconds": 10}, "loginTokenSeconds"),
        ({"connections": 0}, "connections"),
        ({"networks": ["private"]}, "networks"),
        ({"proxy": "socks5://proxy"}, "proxy"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(provider: dict[str, Any], field: str) -> None:
    given = complete_open_nebula() | provider
    with pytest.raises(InvalidSpecError, match=rf"spec\.provider\.openNebula\.{field}"):
        OpenNebulaSite(SiteConfig("one", given, login()))


async def test_a_wrong_password_is_said_to_be_wrong(yard: Any) -> None:
    with pytest.raises(UnauthenticatedError, match=r"spec\.provider\.openNebula\.credentialsSecretRef"):
        await yard.site(login(password="wrong")).probe()


async def test_tokens_are_used_renewed_and_taken_back(yard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    user = yard.oned.cloud.user("simyard")
    site = yard.site(loginTokenSeconds=600)
    await site.probe()
    [first] = user.tokens
    await site.list_owned()
    assert list(user.tokens) == [first]
    clock = asyncio.get_running_loop().time
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock() + 0.8 * 600)
    await site.list_owned()
    monkeypatch.undo()
    [second] = user.tokens
    assert second != first
    user.tokens.clear()
    await site.list_owned()
    [third] = user.tokens
    assert third != second
    await site.aclose()
    assert not user.tokens


async def test_where_no_token_is_to_be_had_the_password_is_used_and_nobodys_token_is_taken_back(yard: Any) -> None:
    user = yard.oned.cloud.user("simyard")
    others = [user.login("", 600, -1, yard.oned.cloud.now) for _ in range(10)]
    site = yard.site(loginTokenSeconds=600)
    await site.probe()
    await yard.create(site, "a")
    await site.aclose()
    assert [token.value for token in user.tokens] == others


async def test_a_token_that_is_refused_too_is_not_asked_for_over_and_over(yard: Any) -> None:
    site = yard.site(loginTokenSeconds=600)
    await site.probe()
    yard.oned.faults.deny("one.vmpool.info", "User couldn't be authenticated, aborting call.", Code.AUTHENTICATION)
    before = yard.oned.counters.calls["one.user.login"]
    with pytest.raises(UnauthenticatedError):
        await site.list_owned()
    assert yard.oned.counters.calls["one.user.login"] <= before + 2


async def test_a_redirect_is_not_followed_and_its_place_is_named_without_secrets(yard: Any) -> None:
    asked: list[bytes] = []

    async def elsewhere(request: aiohttp.web.BaseRequest) -> aiohttp.web.Response:
        asked.append(await request.read())
        return aiohttp.web.Response(body=b"")

    async with served(elsewhere) as other:
        location = other.replace("http://", "http://user:word@") + "/RPC2?ticket=word"
        for status in (301, 302, 303, 307, 308):
            yard.oned.faults.answer(2, HttpAnswer(status, "Moved", headers=(("Location", location),)))
            with pytest.raises(InvalidSpecError, match=r"spec\.provider\.openNebula\.endpoint") as raised:
                await yard.site().probe()
            assert f"redirects to {other}/RPC2. The redirect is not followed" in str(raised.value)
            assert "word" not in str(raised.value)
    assert not asked


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
async def test_a_packed_answer_is_not_unpacked(yard: Any, encoding: str) -> None:
    bomb = HttpAnswer(200, "OK", gzip.compress(bytes(10_000_000)), (("Content-Encoding", encoding),))
    yard.oned.faults.answer(1, bomb, "one.system.version")
    with pytest.raises(InvalidSpecError, match="compressed"):
        await yard.site().probe()
    yard.oned.faults.answer(1, bomb, "one.template.instantiate")
    with pytest.raises(UnknownOutcomeError, match="compressed"):
        await yard.create(yard.site(), "a")


@pytest.mark.parametrize(("changes", "kind"), [(False, InvalidSpecError), (True, UnknownOutcomeError)])
async def test_an_answer_without_end_is_given_up(changes: bool, kind: type[SiteError]) -> None:
    async def serve(request: aiohttp.web.BaseRequest) -> aiohttp.web.StreamResponse:
        response = aiohttp.web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(bytes(65536))
        return response

    async with asyncio.timeout(240), served(serve) as url, aclosing(carrier_to(url, max_answer_bytes=10**6)) as carrier:
        with pytest.raises(kind, match="more than 1000000 bytes"):
            await carrier.post(b"", changes=changes)


async def test_a_token_in_the_secret_is_used_as_it_is(yard: Any) -> None:
    user = yard.oned.cloud.user("simyard")
    token = user.login("", 600, -1, yard.oned.cloud.now)
    site = yard.site({"username": "simyard", "token": token}, loginTokenSeconds=600)
    await site.probe()
    user.tokens.clear()
    with pytest.raises(UnauthenticatedError, match="`token`"):
        await site.probe()


async def test_few_connections_are_open_and_changes_leave_one_to_the_polls() -> None:
    """Changes that are not answered take all connections but one; a read goes through."""
    bodies: list[bytes] = []
    answered = asyncio.Event()

    async def serve(request: aiohttp.web.BaseRequest) -> aiohttp.web.Response:
        bodies.append(await request.read())
        if bodies[-1] == b"change":
            await answered.wait()
        return aiohttp.web.Response(body=b"done")

    async with served(serve) as url:
        config = SiteConfig("one", complete_open_nebula(endpoint=url, connections=3), login())
        carrier = transport.Transport(Settings.from_config(config))
        changes = [asyncio.create_task(carrier.post(b"change", changes=True)) for _ in range(6)]
        try:
            async with asyncio.timeout(240):
                for _ in range(3):
                    assert await carrier.post(b"read", changes=False) == b"done"
                    assert bodies.count(b"change") <= 2
                answered.set()
                assert await asyncio.gather(*changes) == [b"done"] * 6
        finally:
            await carrier.aclose()


@asynccontextmanager
async def served(serve: Callable[..., Any]) -> AsyncIterator[str]:
    """A server of another kind; gives its URL."""
    runner = aiohttp.web.ServerRunner(aiohttp.web.Server(serve))
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_proxy_with_a_login_is_gone_through(yard: Any) -> None:
    asked: list[tuple[str, str]] = []

    async def relay(request: aiohttp.web.BaseRequest) -> aiohttp.web.Response:
        asked.append((str(request.url), request.headers.get("Proxy-Authorization", "")))
        if not asked[-1][1]:
            return aiohttp.web.Response(status=407)
        async with (
            aiohttp.ClientSession() as session,
            session.post(yard.oned.url, data=await request.read(), headers={"Content-Type": "text/xml"}) as answer,
        ):
            return aiohttp.web.Response(body=await answer.read())

    async with served(relay) as proxy:
        site = yard.site(
            login(proxyUsername="me", proxyPassword="pass"), endpoint="http://one.example.org/RPC2", proxy=proxy
        )
        assert (await site.probe()).version == "OpenNebula 7.0.0"
        assert asked[0] == ("http://one.example.org/RPC2", "Basic bWU6cGFzcw==")
        with pytest.raises(UnauthenticatedError, match=r"spec\.provider\.openNebula\.proxy"):
            await yard.site(endpoint="http://one.example.org/RPC2", proxy=proxy).probe()
        with pytest.raises(UnavailableError, match=r"spec\.provider\.openNebula\.proxy"):
            await yard.site(proxy="http://127.0.0.1:1").probe()


async def test_times_are_by_the_clock_of_the_site(yard: Any) -> None:
    version = xmlrpc.client.dumps(([True, "7.0.0", 0],), methodresponse=True).encode()
    ahead = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    dated = (("Date", email.utils.format_datetime(ahead, usegmt=True)),)
    yard.oned.faults.answer(1, HttpAnswer(200, "OK", version, dated), "one.system.version")
    async with aclosing(carrier_to(yard.oned.url)) as carrier:
        assert abs(carrier.get_time() - time.time()) < 60
        await carrier.post(xmlrpc.client.dumps(("session",), "one.system.version").encode(), changes=False)
        assert abs(carrier.get_time() - time.time() - 3600) < 60
