"""The part of the suite that pytest loads wherever simyard-sites is installed: the option ``--site``."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

import pytest

from simyard_sites import conformance

if TYPE_CHECKING:
    from simyard_sites.conformance.world import MakeWorld

for _module in pkgutil.iter_modules(conformance.__path__, f"{conformance.__name__}."):
    if _module.name != __name__:
        pytest.register_assert_rewrite(_module.name)

_OPTION = "--site"
_SUITE = f"{conformance.__name__}.test_site"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer ``--site``."""
    parser.getgroup("simyard").addoption(
        _OPTION,
        metavar="MODULE:FACTORY",
        help="The world that simyard_sites.conformance runs in: an asynchronous context manager that gives a World.",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say at once that ``--site`` is missing or wrong."""
    if any(isinstance(item, pytest.Function) and item.module.__name__ == _SUITE for item in items):
        make_world_of(config)


def make_world_of(config: pytest.Config) -> MakeWorld:
    """What ``--site`` names.

    Raises:
        pytest.UsageError: it is missing, or names nothing that can be called.
    """
    given = config.getoption(_OPTION)
    if not given:
        raise pytest.UsageError(f"{_OPTION} is missing: which site is to be tested? {_OPTION} MODULE:FACTORY")
    module, _, name = given.partition(":")
    try:
        factory: MakeWorld = getattr(importlib.import_module(module), name or "make_world")
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"{_OPTION} {given}: {error}") from error
    return factory
