# SPDX-License-Identifier: Apache-2.0
"""Requests to the API server through the program kubectl, so that the plugin authenticates exactly as kubectl does."""

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
NO_KUBECTL = "error: kubectl was not found in PATH: install kubectl, or correct PATH"


class KubectlError(click.ClickException):
    """A failed call of kubectl, with the message and the exit code of kubectl."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.code = exit_code

    def show(self, file: Any = None) -> None:
        """Print the message of kubectl unchanged, and exit with the exit code of kubectl."""
        say(self.message, err=True)
        sys.exit(self.code)


@dataclass(frozen=True)
class Kubectl:
    """A caller of kubectl, for the cluster and the namespace that the user chose.

    Attributes:
        options: ``--kubeconfig``, ``--context`` and similar options, as the user gave them.
        namespace: the namespace; None for the namespace of the kubeconfig context.
    """

    options: Sequence[str] = ()
    namespace: str | None = None

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """Return one object, from the given namespace, or by default from the user's namespace."""
        scope = ["-n", namespace] if namespace else self._scope(resource)
        return self._json("get", _full(resource), name, "-o", "json", *scope)

    def create(self, item: Json) -> Json:
        """Create an object in the user's namespace, and return it as the server stored it.

        Raises:
            KubectlError: the server refused the object.
        """
        scope = ["-n", self.namespace] if self.namespace else []
        answer: Json = json.loads(self._run("create", "-f", "-", "-o", "json", *scope, text=json.dumps(item)))
        return answer

    def replace(self, item: Json) -> None:
        """Write a whole object.

        Raises:
            KubectlError: the object on the server is newer than the given one, or the server refused the write.
        """
        self._run("replace", "-f", "-", text=json.dumps(item))

    def list_all(self, resource: Resource, *, labels: str = "", everywhere: bool = False) -> list[Json]:
        """Return the objects of a resource."""
        arguments = ["get", _full(resource), "-o", "json"]
        arguments += ["--all-namespaces"] if everywhere else self._scope(resource)
        if labels:
            arguments += ["-l", labels]
        items: list[Json] = self._json(*arguments)["items"]
        return items

    def watch(self, resource: Resource, name: str) -> Iterator[Json]:
        """Yield the object, and yield it again after each change, until the object is deleted.

        Each watch begins at the version that the method has read. `kubectl get NAME --watch` would lose the changes
        between its own read and its watch.

        Raises:
            KubectlError: the object does not exist, or the watch failed.
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
        """Yield the events of an object after a version of it, until the server ends the watch."""
        namespace = f"/namespaces/{self.get_current_namespace()}" if resource.namespaced else ""
        query = f"watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={version}"
        path = f"/apis/{resource.api_version}{namespace}/{resource.plural}?{query}"
        for line in self._stream("get", "--raw", path):
            yield json.loads(line)

    def _stream(self, *arguments: str) -> Iterator[str]:
        """Yield each line that kubectl prints, at once.

        Raises:
            KubectlError: kubectl printed an error at the end.
        """
        try:
            process = subprocess.Popen(
                self._command(*arguments),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
            )
        except FileNotFoundError:
            raise KubectlError(NO_KUBECTL, 1) from None
        with process:
            try:
                assert process.stdout is not None
                yield from process.stdout
                assert process.stderr is not None
                if message := process.stderr.read().strip():
                    raise KubectlError(message, process.wait())
            finally:
                process.terminate()

    def stream_subresource(self, resource: Resource, name: str, path: str) -> Iterator[str]:
        """Send GET for a path below an object in the aggregated API, and yield each line of the answer at once.

        Raises:
            KubectlError: the request failed, or the answer ended too early.
        """
        yield from self._stream("get", "--raw", self._subresource_path(resource, name, path))

    def get_subresource(self, resource: Resource, name: str, path: str) -> str:
        """Send GET for a path below an object in the aggregated API, and return the answer."""
        return self._run("get", "--raw", self._subresource_path(resource, name, path))

    def call(self, resource: Resource, name: str, path: str, body: Json) -> Json:
        """Send POST for a path below an object in the aggregated API, and return the answer."""
        text = self._run(
            "create", "--raw", self._subresource_path(resource, name, path), "-f", "-", text=json.dumps(body)
        )
        answer: Json = json.loads(text)
        return answer

    def put(self, resource: Resource, name: str, path: str, body: Json) -> Json:
        """Send PUT for a path below an object in the aggregated API, and return the answer."""
        text = self._run(
            "replace", "--raw", self._subresource_path(resource, name, path), "-f", "-", text=json.dumps(body)
        )
        answer: Json = json.loads(text)
        return answer

    def raw(self, verb: str, resource: Resource, name: str, body: Json | None = None) -> Json:
        """Send a request for a resource of the aggregated API, and return the answer.

        ``verb`` is that of kubectl: ``get``, ``create`` or ``delete``. ``name`` is empty for the collection, and may
        end with a query.
        """
        path = self._subresource_path(resource, name, "").rstrip("/").replace("/?", "?")
        more = ["-f", "-"] if body is not None else []
        answer: Json = json.loads(self._run(verb, "--raw", path, *more, text=json.dumps(body) if body else None))
        return answer

    def patch(self, resource: Resource, name: str, change: Json) -> None:
        """Change fields of an object with a merge patch."""
        self._run("patch", _full(resource), name, "--type=merge", "-p", json.dumps(change), *self._scope(resource))

    def get_current_namespace(self) -> str:
        """Return the namespace that commands use: the user's choice, else that of the context, else ``default``."""
        if self.namespace:
            return self.namespace
        return self._run("config", "view", "--minify", "-o", "jsonpath={..namespace}").strip() or "default"

    def _subresource_path(self, resource: Resource, name: str, path: str) -> str:
        namespace = self.get_current_namespace()
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
            raise KubectlError(NO_KUBECTL, 1) from None
        except subprocess.TimeoutExpired:
            raise KubectlError(
                f"error: the API server did not answer within {REQUEST_SECONDS} s: check the connection and try again",
                1,
            ) from None
        if done.returncode:
            raise KubectlError(done.stderr.strip(), done.returncode)
        return done.stdout


def _full(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
