"""An emulated cloud: a process of its own with modelled stages of a start, whose machines are real service adapters.

What is emulated: the cloud. What its front end accepts, when its scheduler places machines, how long they are pending,
in prolog and in boot, and what fails, are settings (``spec.provider.emulated`` of a CloudSite, see
``docs/emulated-clouds.md``); image and size of a machine mean nothing. Every figure that comes from it is emulated, and
so says the version that it reports, with the profile. What is real: the adapter in each machine, its connector, what
these start, and how they live and die.

The cloud runs on this computer (Linux, with ``setpriv`` of util-linux), in ``<directory>/<installation>-<site>`` where
``<directory>`` is ``$SIMYARD_EMULATED_DIR``, or ``simyard-emulated`` in the user's runtime directory, or
``simyard-emulated-<user id>`` in the temporary directory. The first call of a site starts it. It outlives its clients
while it has machines, and takes them with it when it ends:
``python -m simyard_sites.emulated stop --directory <directory>/<installation>-<site>``.
"""

from simyard_sites.emulated.site import EmulatedSite

__all__ = ["EmulatedSite"]
