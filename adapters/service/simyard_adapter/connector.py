# SPDX-License-Identifier: Apache-2.0
"""The vendor's interface: a class that declares attributes and actions, and whose methods are the actions.

::

    class Beam(Connector):
        state = attribute("string", default="idle", enum=("idle", "running"))

        @action(parameters=[parameter("length", "number", unit="mm", minimum=1, default=1000)],
                result=[parameter("max_displacement", "number", unit="mm")], timeout_seconds=300, idempotent=True)
        def solve(self, context: Context, *, length: float) -> dict:
            self.state = "running"
            done = context.run(["ccx", "-i", "beam"], on_line=...)
            if done.returncode:
                raise ActionError(done.stderr)
            return {"max_displacement": ...}

Each call of a plain method runs in its own thread; ``async`` methods run in the adapter's event loop.
"""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any, Callable, ClassVar, Iterable, Optional, TypeVar, Union

from simyard_adapter.attributes import AttributeStore
from simyard_adapter.context import Context
from simyard_adapter.declarations import Action, ActionMode, Attribute, Interface, Json, Value, ValueType

Method = TypeVar("Method", bound=Callable[..., Any])


def parameter(
    name: str,
    value_type: Union[ValueType, str],
    *,
    description: str = "",
    unit: str = "",
    required: bool = False,
    default: Json = None,
    enum: Iterable[Json] = (),
    pattern: str = "",
    minimum: Optional[float] = None,
    maximum: Optional[float] = None,
    max_length: Optional[int] = None,
    items: Union[ValueType, str, None] = None,
    media_type: str = "",
    max_bytes: Optional[int] = None,
) -> Value:
    """Declare a parameter of an action, or a field of its result; the arguments are the fields of :class:`Value`.

    Raises:
        ValueError: The type is unknown, or the default does not fit the declaration.
    """
    return _checked(
        Value(
            name=name,
            type=ValueType(value_type),
            description=description,
            unit=unit,
            required=required,
            default=default,
            enum=tuple(enum),
            pattern=pattern,
            minimum=minimum,
            maximum=maximum,
            max_length=max_length,
            items=ValueType(items) if items else None,
            media_type=media_type,
            max_bytes=max_bytes,
        )
    )


class attribute:  # noqa: N801 - reads as a declaration in the class body
    """The declaration of an attribute, as a member of the connector class.

    The member's name is the attribute's name; the other arguments are the fields of :class:`Attribute`. An assignment
    checks the value (:class:`InvalidValueError`) and sends it to the clients. Any thread may assign.
    """

    def __init__(
        self,
        value_type: Union[ValueType, str],
        *,
        description: str = "",
        unit: str = "",
        required: bool = False,
        default: Json = None,
        enum: Iterable[Json] = (),
        pattern: str = "",
        minimum: Optional[float] = None,
        maximum: Optional[float] = None,
        max_length: Optional[int] = None,
        items: Union[ValueType, str, None] = None,
        media_type: str = "",
        max_bytes: Optional[int] = None,
        mutable: bool = False,
    ) -> None:
        self._fields: dict[str, Any] = {
            "type": ValueType(value_type),
            "description": description,
            "unit": unit,
            "required": required,
            "default": default,
            "enum": tuple(enum),
            "pattern": pattern,
            "minimum": minimum,
            "maximum": maximum,
            "max_length": max_length,
            "items": ValueType(items) if items else None,
            "media_type": media_type,
            "max_bytes": max_bytes,
            "mutable": mutable,
        }

    def __set_name__(self, owner: type, name: str) -> None:
        self.declaration = Attribute(name=name, **self._fields)
        _checked(self.declaration)

    def __get__(self, instance: Optional["Connector"], owner: Optional[type] = None) -> Any:
        return self if instance is None else instance.attribute_store.get(self.declaration.name)

    def __set__(self, instance: "Connector", value: Json) -> None:
        instance.attribute_store.set(self.declaration.name, value)


def action(
    *,
    parameters: Iterable[Value] = (),
    result: Iterable[Value] = (),
    mode: Union[ActionMode, str] = ActionMode.SYNC,
    timeout_seconds: int = 30,
    idempotent: bool = False,
    concurrent: bool = False,
    description: str = "",
) -> Callable[[Method], Method]:
    """Declare that a method is an action with the method's name; the arguments are the fields of :class:`Action`.

    The method receives the :class:`Context` and each parameter as a keyword. It returns None or a mapping, which is
    checked against ``result``. A parameter of the type ``file`` is the :class:`~pathlib.Path` of the downloaded file,
    which must not be changed. A result of this type is the path of a file that the adapter uploads. In an array of
    files each item is a path; as a result, it may also be the path of a folder. The default description is the first
    line of the method's docstring.

    Raises:
        TypeError: The method does not accept the declared parameters.
    """

    def declare(method: Method) -> Method:
        declaration = Action(
            name=method.__name__,
            description=description or (inspect.getdoc(method) or "").partition("\n")[0],
            parameters=tuple(parameters),
            result=tuple(result),
            mode=ActionMode(mode),
            timeout_seconds=timeout_seconds,
            idempotent=idempotent,
            concurrent=concurrent,
        )
        _check_signature(method, declaration)
        method.__simyard_action__ = declaration  # type: ignore[attr-defined]
        return method

    return declare


class Connector:
    """The base class of connectors. The adapter creates one instance per worker, without arguments.

    Attributes:
        interface: The interface that the class declares.
        directory: The directory with the manifest's files; set before :meth:`start`.
        log: The worker's log; set before :meth:`start`.
    """

    interface: ClassVar[Interface] = Interface()
    directory: Path
    log: "logging.LoggerAdapter[Any]"

    attribute_store: AttributeStore
    running: Callable[[], list[Context]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        members = {name: member for base in reversed(cls.__mro__) for name, member in vars(base).items()}
        cls.interface = Interface(
            attributes=tuple(item.declaration for item in members.values() if isinstance(item, attribute)),
            actions=tuple(item.__simyard_action__ for item in members.values() if hasattr(item, "__simyard_action__")),
        )

    def __new__(cls) -> "Connector":  # noqa: D102
        instance = super().__new__(cls)
        instance.attribute_store = AttributeStore(cls.interface)
        instance.running = list
        return instance

    @property
    def invocations(self) -> list[Context]:
        """The running invocations; inside an action, its own invocation is one of them."""
        return self.running()

    def start(self) -> Any:
        """Prepare the connector; may be ``async``.

        The adapter calls this once, after it has set the user's attributes and before the worker registers.
        """

    def stop(self) -> Any:
        """Release resources; may be ``async``. The adapter calls this once when the worker ends."""

    def on_set(self, name: str, value: Json) -> Any:
        """Handle the new value of a mutable attribute, before it is stored. May be ``async``.

        Raise an exception to refuse the value.
        """


def _checked(value: Value) -> Value:
    if value.default is not None:
        value.check(value.default, f"default of {value.name}")
    return value


def _check_signature(method: Callable[..., Any], declaration: Action) -> None:
    """Check that the method accepts every declared parameter, and that optional parameters have a default."""
    signature = inspect.signature(method)
    names = {item.name for item in declaration.parameters}
    present = {item.name for item in declaration.parameters if item.required or item.default is not None}
    try:
        signature.bind(None, None, **dict.fromkeys(names))
        signature.bind(None, None, **dict.fromkeys(present))
    except TypeError as error:
        raise TypeError(
            f"action {declaration.name}: the method does not accept the declared parameters: {error}"
        ) from None
