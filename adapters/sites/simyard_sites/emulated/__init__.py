# SPDX-License-Identifier: Apache-2.0
"""Emulates a cloud: a process with a model of the stages of a start, whose machines are real service adapters.

The cloud is a model, and its numbers are settings (``spec.provider.emulated`` of a CloudSite, see
``docs/emulated-clouds.md``): the limits of its front end, the times of its scheduler, the duration of pending, prolog
and boot, and the failures. The image and the size of a machine have no effect. Every figure from such a cloud is
emulated; its version says so and names the profile. The adapter in each machine, its connector, and all processes that
they start are real.

The cloud runs on this computer (Linux, with ``setpriv`` of util-linux), in ``<directory>/<installation>-<site>``.
``<directory>`` is ``$SIMYARD_EMULATED_DIR``, or ``simyard-emulated`` in the user's runtime directory, or
``simyard-emulated-<user id>`` in the temporary directory. The first call of a site starts the cloud. The cloud runs as
long as it has clients or machines. This command ends it with all its machines: ``python -m simyard_sites.emulated stop
--directory <directory>/<installation>-<site>``.
"""

from simyard_sites.emulated.site import EmulatedSite

__all__ = ["EmulatedSite"]
