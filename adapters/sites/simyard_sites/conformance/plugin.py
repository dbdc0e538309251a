# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin with the option ``--site``, which is active wherever simyard-sites is installed."""

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
    """Add the option ``--site``."""
    parser.getgroup("simyard").addoption(
        _OPTION,
        metavar="MODULE:FACTORY",
        help="The factory of the world for simyard_sites.conformance: it returns an asynchronous context manager.",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fail at once if ``--site`` is missing or wrong."""
    if any(isinstance(item, pytest.Function) and item.module.__name__ == _SUITE for item in items):
        make_world_of(config)


def make_world_of(config: pytest.Config) -> MakeWorld:
    """Return the factory that ``--site`` names.

    Raises:
        pytest.UsageError: The option is missing, or does not name a callable.
    """
    given = config.getoption(_OPTION)
    if not given:
        raise pytest.UsageError(f"{_OPTION} is missing: name the site to test by {_OPTION} MODULE:FACTORY")
    module, _, name = given.partition(":")
    try:
        factory: MakeWorld = getattr(importlib.import_module(module), name or "make_world")
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"{_OPTION} {given}: {error}") from error
    return factory
