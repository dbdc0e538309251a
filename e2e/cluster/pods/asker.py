# SPDX-License-Identifier: Apache-2.0
"""Send the HTTPS requests of the variable ``REQUESTS`` from a pod, and print one line of JSON for each answer.

Each request is ``{"name", "url", "method"?, "headers"?, "body"?, "ca"?, "certificate"?}``; ``certificate`` is PEM, with
a key. Without ``ca`` the certificate of the server is not verified: the tests are about the server's view of the
client.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

TIMEOUT = aiohttp.ClientTimeout(total=30)
MOST = 4000


def context(request: dict[str, Any]) -> ssl.SSLContext:
    found = ssl.create_default_context(cadata=request.get("ca"))
    if not request.get("ca"):
        found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    if certificate := request.get("certificate"):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "client.pem"
            file.write_text(certificate)
            found.load_cert_chain(file)
    return found


async def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Return status and text of the answer; 0: the connection was refused or broken, -1: no answer came in time."""
    connector = aiohttp.TCPConnector(ssl=context(request))
    async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session:
        method, url, headers = request.get("method", "GET"), request["url"], request.get("headers") or {}
        try:
            async with session.request(method, url, headers=headers, data=request.get("body")) as answer:
                return {"status": answer.status, "text": (await answer.text())[:MOST]}
        except TimeoutError:  # also an OSError
            return {"status": -1, "text": ""}
        except (aiohttp.ClientError, OSError) as error:
            return {"status": 0, "text": f"{type(error).__name__}: {error}"[:MOST]}


async def main() -> None:
    for request in json.loads(os.environ["REQUESTS"]):
        print(json.dumps({"name": request["name"], **await ask(request)}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
