# SPDX-License-Identifier: Apache-2.0
"""Build and run jOCCI, an OCCI client in Java by other authors, and read its output."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE / "jocci"
PRODUCTS = HERE.parents[1] / ".run" / "occi-clients" / "jocci"
BUILD_SECONDS = 240
CLIENT_SECONDS = 200
MISSING = [command for command in ("java", "javac", "mvn") if shutil.which(command) is None]


def build() -> str:
    """Build the client in the version of the project; return its class path."""
    PRODUCTS.mkdir(parents=True, exist_ok=True)
    libraries = PRODUCTS / "classpath"
    command = ["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), f"-Dproducts={PRODUCTS}"]
    goals = ["compile", "dependency:build-classpath", f"-Dmdep.outputFile={libraries}"]
    done = subprocess.run([*command, *goals], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return f"{PRODUCTS / 'classes'}:{libraries.read_text().strip()}"


class Client:
    """The running Java program: its output so far, and the point at which it waits."""

    def __init__(self, command: list[str], variables: dict[str, str], log: Path) -> None:
        self.said: dict[str, str] = {}
        self._log = log
        self._process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("wb"),
            text=True,
        )
        self._deadline = threading.Timer(CLIENT_SECONDS, self._process.kill)
        self._deadline.start()

    def reach(self, place: str) -> None:
        """Let the program run to a point, or to its end ("")."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self.said:
            print(file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            name, _, value = line.rstrip("\n").partition("=")
            self.said[name] = value
            if (name, value) == ("at", place):
                return
        assert not place and self._process.wait() == 0, f"{self.said}\n{self._log.read_text()}"

    def end(self) -> None:
        """Kill the program."""
        self._process.kill()
        self._process.communicate()
        self._deadline.cancel()


@contextmanager
def running(
    classpath: str, log: Path, variables: dict[str, str], *arguments: str, **properties: str
) -> Iterator[Client]:
    """Provide the client; ``properties`` are those of Java, with ``_`` for dots."""
    given = [f"-D{name.replace('_', '.')}={value}" for name, value in properties.items()]
    client = Client(["java", *given, "-cp", classpath, "dev.simyard.e2e.JocciClient", *arguments], variables, log)
    try:
        yield client
    finally:
        client.end()


def words(text: str) -> set[str]:
    """Return the items of a list as Java prints it."""
    return set(text.strip("[]").split(", "))
