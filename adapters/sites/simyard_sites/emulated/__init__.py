"""An emulated cloud: a process of its own with modelled stages of a start, whose machines are real service adapters.

Every figure that comes from it is emulated, and so says the version that it reports.
"""

from simyard_sites.emulated.site import EmulatedSite

__all__ = ["EmulatedSite"]
