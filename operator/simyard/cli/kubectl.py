"""The command's way to the API server: kubectl itself, so that it logs in exactly as its user's kubectl does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from simyard.api.base import Json
from simyard.api.names import SUBRESOURCES_API_VERSION
from simyard.cli.output import say
from simyard_sites.kubernetes.resource import Resource

REQUEST_SECONDS = 60


class KubectlError(click.ClickException):
    """kubectl failed; it has its message and its exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.code = exit_code

    def show(self, file: Any = None) -> None:
        """Print what kubectl said, as kubectl says it, and leave with its exit code."""
        say(self.message, err=True)
        sys.exit(self.code)


@dataclass(frozen=True)
class Kubectl:
    """Calls kubectl with the user's choice of cluster and namespace.

    Attributes:
        options: ``--kubeconfig``, ``--context`` and the like, as given.
        namespace: the namespace, or None for that of the context.
    """

    options: Sequence[str] = ()
    namespace: str | None = None

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """One object; in the user's namespace unless another one is given."""
        scope = ["-n", namespace] if namespace else self._scope(resource)
        return self._json("get", _full(resource), name, "-o", "json", *scope)

    def replace(self, item: Json) -> None:
        """Write a whole object that was read before; it fails if somebody else has changed it since."""
        self._run("replace", "-f", "-", text=json.dumps(item))

    def list_all(self, resource: Resource, *, labels: str = "", everywhere: bool = False) -> list[Json]:
        """The objects of a resource."""
        arguments = ["get", _full(resource), "-o", "json"]
        arguments += ["--all-namespaces"] if everywhere else self._scope(resource)
        if labels:
            arguments += ["-l", labels]
        items: list[Json] = self._json(*arguments)["items"]
        return items

    def watch(self, resource: Resource, name: str) -> Iterator[Json]:
        """The object, and again whenever it changes, until the caller stops or the object is deleted.

        Each watch begins at the version that was read: `kubectl get NAME --watch` loses what happens between its own
        reading and its watching.

        Raises:
            KubectlError: there is no such object, or the watch failed.
        """
        while True:
            item = self.get(resource, name)
            yield item
            version = item["metadata"]["resourceVersion"]
            for event in self._events(resource, name, version):
                if event["type"] == "DELETED":
                    return
                if event["type"] == "ERROR":
                    break
                yield event["object"]

    def _events(self, resource: Resource, name: str, version: str) -> Iterator[Json]:
        """What happens to an object after a version of it, until the server ends the watch."""
        namespace = f"/namespaces/{self.current_namespace()}" if resource.namespaced else ""
        query = f"watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={version}"
        path = f"/apis/{resource.api_version}{namespace}/{resource.plural}?{query}"
        command = self._command("get", "--raw", path)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    yield json.loads(line)
                assert process.stderr is not None
                if message := process.stderr.read().strip():
                    raise KubectlError(message, process.wait())
            finally:
                process.terminate()

    def subresource(self, resource: Resource, name: str, path: str) -> str:
        """GET of a path below an object in the aggregated API."""
        return self._run("get", "--raw", self._subresource_path(resource, name, path))

    def call(self, resource: Resource, name: str, path: str, body: Json) -> Json:
        """POST to a path below an object in the aggregated API."""
        text = self._run(
            "create", "--raw", self._subresource_path(resource, name, path), "-f", "-", text=json.dumps(body)
        )
        answer: Json = json.loads(text)
        return answer

    def put(self, resource: Resource, name: str, path: str, body: Json) -> Json:
        """PUT to a path below an object in the aggregated API."""
        text = self._run(
            "replace", "--raw", self._subresource_path(resource, name, path), "-f", "-", text=json.dumps(body)
        )
        answer: Json = json.loads(text)
        return answer

    def patch(self, resource: Resource, name: str, change: Json) -> None:
        """Change parts of an object by a merge patch."""
        self._run("patch", _full(resource), name, "--type=merge", "-p", json.dumps(change), *self._scope(resource))

    def current_namespace(self) -> str:
        """The namespace in use."""
        if self.namespace:
            return self.namespace
        return self._run("config", "view", "--minify", "-o", "jsonpath={..namespace}").strip() or "default"

    def _subresource_path(self, resource: Resource, name: str, path: str) -> str:
        namespace = self.current_namespace()
        return f"/apis/{SUBRESOURCES_API_VERSION}/namespaces/{namespace}/{resource.plural}/{name}/{path}"

    def _scope(self, resource: Resource) -> list[str]:
        return ["-n", self.namespace] if resource.namespaced and self.namespace else []

    def _command(self, *arguments: str) -> list[str]:
        return ["kubectl", *self.options, *arguments]

    def _json(self, *arguments: str) -> Json:
        answer: Json = json.loads(self._run(*arguments))
        return answer

    def _run(self, *arguments: str, text: str | None = None) -> str:
        try:
            done = subprocess.run(
                self._command(*arguments),
                input=text,
                capture_output=True,
                text=True,
                timeout=REQUEST_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            raise KubectlError("error: kubectl was not found in PATH", 1) from None
        except subprocess.TimeoutExpired:
            raise KubectlError(f"error: the API server did not answer within {REQUEST_SECONDS} s", 1) from None
        if done.returncode:
            raise KubectlError(done.stderr.strip(), done.returncode)
        return done.stdout


def _full(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
