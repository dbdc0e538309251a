# SPDX-License-Identifier: Apache-2.0
"""Targets: services, pools and workers, on which users call actions.

An action of the interface is a method of its target: ``pool.solve(length=2000)``. :meth:`Target.call` is the same for
any name. Each call returns a result; :meth:`Target.submit` and :meth:`Target.map` return futures.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, overload

from simyard_client.batches import Batch, Errors, get_outcome
from simyard_client.calls import MAX_IN_FLIGHT, SyncCalls
from simyard_client.connection import Connection
from simyard_client.display import Table
from simyard_client.errors import NotFoundError
from simyard_client.files import make_parameters, make_values
from simyard_client.futures import Future
from simyard_client.interface import Action, Interface
from simyard_client.paths import build_path, build_subresource_path
from simyard_client.results import Result
from simyard_client.stored_calls import StoredCalls, make_batch_id
from simyard_client.target_names import TargetName

DEFAULT_THREADS = 64


class Target:
    """An object whose service declares actions and attributes.

    Attributes:
        name: The name of the object.
    """

    plural: str

    def __init__(self, connection: Connection, name: str) -> None:
        """Refer to an object; nothing is sent yet."""
        self._connection = connection
        self.name = name
        self._target = TargetName(self.plural, connection.namespace, name)
        self._declared: tuple[str, Interface] | None = None

    @property
    def interface(self) -> Interface:
        """The actions and attributes that the vendor declared. It is read once."""
        return self._get_declared()[1]

    @property
    def service_name(self) -> str:
        """The name of the service of this object."""
        return self._get_declared()[0]

    def read(self) -> dict[str, Any]:
        """Return the object as the API has it now."""
        return self._connection.get(build_path(self.plural, self._connection.namespace, self.name))

    def call(self, action: str, /, **parameters: Any) -> Result:
        """Call an action, wait, and return its result. Ctrl-C cancels the action.

        Raises:
            ActionError: The action has no result; the class tells why.
        """
        future = self.submit(action, **parameters)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def submit(self, action: str, /, *, durable: bool = False, **parameters: Any) -> Future:
        """Call an action, and return the future of its result, which coroutines can await.

        A Sync action is called by a request that waits. Any other action, and each ``durable`` call, is stored as a
        ServiceAction: it survives this process, and ``future.action`` has its name.
        """
        return self.map(action, [parameters], durable=durable)[0]

    def map(
        self,
        action: str,
        inputs: Iterable[Mapping[str, Any]],
        /,
        *,
        durable: bool = False,
        max_in_flight: int = MAX_IN_FLIGHT,
        **fixed: Any,
    ) -> Batch:
        """Call an action once for each input, and return the batch of the futures at once.

        A ``durable`` batch is returned when all its calls are stored.

        Args:
            action: The name of the action.
            inputs: The parameters of each call.
            durable: Store the calls as ServiceActions, which survive this process.
            max_in_flight: The largest number of Sync calls at the same time.
            fixed: Parameters that all calls share.
        """
        declared = self._find_action(action)
        shared = self._convert(declared, fixed)
        loop = self._connection.loop
        futures = [
            Future(loop, index, {**shared, **self._convert(declared, given)}) for index, given in enumerate(inputs)
        ]
        batch_id = make_batch_id()
        stored = durable or not declared.is_sync
        if stored:
            calls = StoredCalls(self._connection, batch_id)
            loop.spawn(calls.run(self._target, declared, futures))
            if durable:
                self._connection.run(lambda _: calls.wait_stored())
        else:
            sync = SyncCalls(self._connection, self._target, declared, futures, max_in_flight=max_in_flight)
            loop.spawn(sync.run())
        return Batch(batch_id, futures, durable=stored)

    @overload
    def imap(
        self,
        action: str,
        inputs: Iterable[Mapping[str, Any]],
        /,
        *,
        errors: Literal["raise"] = ...,
        ahead: int = ...,
        **fixed: Any,
    ) -> Iterator[Result]: ...
    @overload
    def imap(
        self, action: str, inputs: Iterable[Mapping[str, Any]], /, *, errors: Errors, ahead: int = ..., **fixed: Any
    ) -> Iterator[Result | BaseException]: ...
    def imap(
        self,
        action: str,
        inputs: Iterable[Mapping[str, Any]],
        /,
        *,
        errors: Errors = "raise",
        ahead: int = MAX_IN_FLIGHT,
        **fixed: Any,
    ) -> Iterator[Result | BaseException]:
        """Yield the results of calls in the order of the inputs, which may be endless.

        At most ``ahead`` inputs are taken before their results are asked for, and a result is forgotten when it was
        yielded. The memory is therefore bounded.
        """
        batches: list[Batch] = []
        source = iter(inputs)
        step = max(1, ahead // 2)

        def take() -> None:
            given = list(itertools.islice(source, step))
            if given:
                batches.append(self.map(action, given, max_in_flight=ahead, **fixed))

        take()
        while batches:
            take()
            for future in batches.pop(0):
                yield get_outcome(future, errors)

    def executor(self, threads: int = DEFAULT_THREADS) -> ThreadPoolExecutor:
        """Return an executor that runs functions of this process, each in a thread.

        An optimiser takes it (or its ``map``) as its pool of workers: the objective runs here, and the calls of
        actions in it run at the workers, at the same time. No code of yours leaves this machine, and nothing needs to
        be pickled.
        """
        return ThreadPoolExecutor(threads, thread_name_prefix=f"simyard-{self.name}")

    def attributes(self, *, fresh: bool = False) -> Table:
        """Return a table of the attributes: the last values that the workers reported, or with ``fresh`` new ones."""
        path = build_subresource_path(self.plural, self._connection.namespace, self.name, "attributes")
        answer = self._connection.get(path, {"fresh": "true"} if fresh else None)
        rows = [
            (item["metadata"]["name"], name, shown["value"], value.get("unit") or "", value["ageMilliseconds"] / 1000)
            for item in answer.get("items", [answer])
            for name, value in item["values"].items()
            for shown in [make_values(self._connection, {"value": value["value"]})]
        ]
        return Table(("worker", "attribute", "value", "unit", "age"), rows, {"age": "s"})

    def __getattr__(self, name: str) -> Callable[..., Result]:
        """Return the method that calls the action with this name."""
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            declared = self.interface.actions.get(name)
        except NotFoundError as error:
            raise AttributeError(f"{name}: {error}") from error
        if declared is None:
            known = ", ".join(self.interface.actions) or "none"
            raise AttributeError(f"{self.service_name} declares no action {name!r}; it declares: {known}")

        def call(**parameters: Any) -> Result:
            return self.call(name, **parameters)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = declared.make_docstring()
        call.__signature__ = declared.make_signature()  # type: ignore[attr-defined]
        return call

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.interface.actions]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._connection.namespace}/{self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and other._target == self._target and other._connection is self._connection

    def __hash__(self) -> int:
        return hash(self._target)

    def _get_declared(self) -> tuple[str, Interface]:
        if self._declared is None:
            answer = self._connection.get(build_subresource_path(self.plural, self._connection.namespace, self.name))
            self._declared = (str(answer["service"]), Interface.from_json(answer["interface"]))
        return self._declared

    def _find_action(self, name: str) -> Action:
        if name not in self.interface.actions:
            self._declared = None  # the vendor may have published a newer interface
        action = self.interface.actions.get(name)
        if action is None:
            known = ", ".join(self.interface.actions) or "none"
            raise NotFoundError(f"{self.service_name} declares no action {name!r}; it declares: {known}")
        return action

    def _convert(self, action: Action, given: Mapping[str, Any]) -> dict[str, Any]:
        files = frozenset(value.name for value in action.parameters if value.type == "file" or value.of_files)
        return make_parameters(self._connection, given, files)
