"""The conformance suite: what every site must do, as tests that any provider runs.

``pytest --pyargs simyard_sites.conformance --site my_package.testing:make_world`` runs it; ``docs/sites/
writing-a-site.md`` explains it. ``make_world`` is an asynchronous context manager that gives a
:class:`~simyard_sites.conformance.world.World` of one test. In a test suite of one's own, a subclass of
:class:`~simyard_sites.conformance.suite.Conformance` with a fixture ``world`` does the same.
"""
