"""Whether this process works, and whether it can serve."""

from __future__ import annotations

from simyard.apiserver.broker import BrokerLink
from simyard.apiserver.directory import Directory
from simyard.apiserver.routes import Document


class Health:
    """``ready`` while objects and front proxy are known and nobody asked to stop.

    A broker that is down does not make it unready: callers are told so, instead of that the whole API is gone.
    """

    def __init__(self, directory: Directory, broker: BrokerLink) -> None:
        self._directory = directory
        self._broker = broker
        self.front_proxy_known = False
        self.stopping = False

    def report(self, probe: Document) -> tuple[bool, str]:
        """The outcome of a probe, and the text of its answer, one line for each check as kube-apiserver writes it.

        Whoever gets an answer to ``/livez`` knows that the event loop turns.
        """
        if probe is not Document.READYZ:
            return True, "ok"
        checks = {
            "objects": self._directory.synced,
            "front-proxy": self.front_proxy_known,
            "shutdown": not self.stopping,
        }
        lines = [f"[+]{name} ok" if good else f"[-]{name} failed" for name, good in checks.items()]
        lines.append(f"[{'+' if self._broker.connected else '-'}]broker (not required)")
        healthy = all(checks.values())
        return healthy, "\n".join([*lines, f"readyz check {'passed' if healthy else 'failed'}\n"])
