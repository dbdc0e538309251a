# SPDX-License-Identifier: Apache-2.0
"""Signed URLs for an S3 server (AWS Signature Version 4, in the query of the URL). Pure.

A signed URL permits one request until it expires, to whoever has it. Everything that is signed must be sent as it was
signed: method, path, query and the listed headers. The server therefore refuses content of another size or digest.

Source: "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)", Amazon S3 API Reference.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote, urlsplit

MAX_EXPIRES_SECONDS = 7 * 24 * 3600
"""The longest life of a signed URL."""
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The account of the platform at the store."""

    access_key: str
    secret_key: str = field(repr=False)
    region: str = "us-east-1"


def sign_url(
    credentials: Credentials,
    method: str,
    url: str,
    *,
    now: datetime,
    expires_seconds: int,
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> str:
    """Return the URL of one request with its signature.

    Args:
        credentials: the account that signs.
        method: the method of the request.
        url: scheme, host and path of the object; the path is not encoded yet.
        now: the time from which the URL is valid, in UTC.
        expires_seconds: the time for which the URL is valid.
        query: further parameters of the query.
        headers: headers that the request must have, beside ``Host``.
    """
    parts = urlsplit(url)
    day, stamp = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{day}/{credentials.region}/s3/aws4_request"
    signed = {"host": parts.netloc, **{name.lower(): value.strip() for name, value in (headers or {}).items()}}
    names = ";".join(sorted(signed))
    parameters = {
        **(query or {}),
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(expires_seconds),
        "X-Amz-SignedHeaders": names,
    }
    path = quote(parts.path, safe="/-_.~")
    encoded = "&".join(sorted(f"{_encode(name)}={_encode(value)}" for name, value in parameters.items()))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    request = "\n".join((method, path, encoded, lines, names, "UNSIGNED-PAYLOAD"))
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{credentials.secret_key}".encode()
    for word in (day, credentials.region, "s3", "aws4_request"):
        key = hmac.digest(key, word.encode(), "sha256")
    text = "\n".join((_ALGORITHM, stamp, scope, digest))
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return f"{parts.scheme}://{parts.netloc}{path}?{encoded}&X-Amz-Signature={signature}"


def _encode(text: str) -> str:
    return quote(text, safe="-_.~")
