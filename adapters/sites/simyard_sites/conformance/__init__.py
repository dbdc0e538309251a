# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: the tests that the sites of every provider must pass.

``pytest --pyargs simyard_sites.conformance --site my_package.testing:make_world`` runs it;
``docs/sites/writing-a-site.md`` explains it. ``make_world`` returns an asynchronous context manager with the
:class:`~simyard_sites.conformance.world.World` of one test. A test suite of your own can instead use a subclass of
:class:`~simyard_sites.conformance.suite.Conformance` with a fixture ``world``.
"""
