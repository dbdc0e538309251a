# SPDX-License-Identifier: Apache-2.0
"""Run an S3 server (versitygw) on loopback, with a bucket for files; a directory of the disk is its storage."""

from __future__ import annotations

import secrets
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from simyard_dev import tools
from simyard_dev.certificates import CertificateAuthority
from simyard_dev.files import locked, write_whole
from simyard_dev.ports import LOOPBACK, Ports
from simyard_dev.processes import Process
from simyard_dev.progress import step

BUCKET = "simyard"
ACCESS_KEY = "simyard"
REGION = "us-east-1"
READY_SECONDS = 240.0
GRACE_SECONDS = 5.0
_PROBE_SECONDS = 2.0


class FileStore:
    """An S3 server whose directory holds the objects, the settings, the port and the log.

    `DIR/access` has the form of the Secret that the platform mounts: one file per key. With `tls`, the server has a
    certificate of its own CA.
    """

    def __init__(self, directory: Path, *, tls: bool = False) -> None:
        self.directory = directory.absolute()
        self.access = self.directory / "access"
        self.objects = self.directory / "objects"
        self._tls = tls
        self._ports = Ports(self.directory)
        self._server = Process(self.directory, "versitygw")

    @property
    def endpoint(self) -> str:
        """The URL of the server. A restart changes the port if another program uses it meanwhile."""
        return f"{'https' if self._tls else 'http'}://{LOOPBACK}:{self._ports['s3']}"

    @property
    def process(self) -> Process:
        """The process of the server, for tests that stop or kill it."""
        return self._server

    def is_running(self) -> bool:
        """Return whether the server runs; it may not be ready yet."""
        return self._server.is_alive()

    def start(self, *, fresh: bool = False) -> None:
        """Start the server unless it runs, and wait until it is ready; `fresh` removes all files.

        Raises:
            SetupError: the server cannot be built, or did not become ready.
        """
        with locked(self.directory.with_name(f"{self.directory.name}.lock")):
            if fresh:
                self._server.kill()
                shutil.rmtree(self.directory, ignore_errors=True)
            if self.is_running() and self._is_ready():
                return
            program = tools.ensure(["versitygw"])["versitygw"]
            with step("starting the S3 server"):
                self._launch(program)
                self._server.wait_ready(self._is_ready, READY_SECONDS)

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Stop the server and keep its files; a grace period of 0 kills it."""
        with locked(self.directory.with_name(f"{self.directory.name}.lock")):
            self._server.stop(grace_seconds)

    def _launch(self, program: Path) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A folder below the root is a bucket. versitygw keeps its own data in a folder beside the root.
        (self.objects / BUCKET).mkdir(parents=True, exist_ok=True)
        port = self._ports.reserve("s3")
        secret_key = self.access / "secretKey"
        if not secret_key.exists():
            self._write_access("secretKey", secrets.token_urlsafe(32))
        for key, value in {"accessKey": ACCESS_KEY, "bucket": BUCKET, "region": REGION}.items():
            self._write_access(key, value)
        self._write_access("endpoint", self.endpoint)
        command: list[str | Path] = [program, "--port", f"{LOOPBACK}:{port}", "--region", REGION, "--health", "/health"]
        if self._tls:
            authority = CertificateAuthority(self.directory / "keys", "ca")
            serving = authority.issue_server("versitygw", (LOOPBACK, "localhost"))
            self._write_access("ca.crt", (self.directory / "keys" / "ca.crt").read_text())
            command += ["--cert", serving.certificate, "--key", serving.key]
        environment = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": secret_key.read_text()}
        self._server.start([*command, "posix", self.objects], environment)

    def _write_access(self, key: str, value: str) -> None:
        self.access.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self.access / key, value, private=True)

    def _is_ready(self) -> bool:
        if self._tls:  # The server answers plain HTTP on its TLS port with status 400.
            return self._answers(f"http://{LOOPBACK}:{self._ports['s3']}/health")
        return self._answers(f"{self.endpoint}/health")

    def _answers(self, url: str) -> bool:
        try:
            urllib.request.urlopen(url, timeout=_PROBE_SECONDS).close()  # noqa: S310 - http to loopback
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True
