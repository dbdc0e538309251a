# SPDX-License-Identifier: Apache-2.0
"""Creates and deletes the logins of pools, and of workers without a pool, at the broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from simyard.api.worker_pool import BrokerCredentials
from simyard.fleet.registry import Registry, get_time
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.credentials import MasterKeys, list_former_logins, make_login
from simyard.messaging.topology import NO_CONNECTIONS, UserLimits, build_worker_user_spec
from simyard.plan.rotation import was_changed_lately
from simyard_adapter.wire import name_pool_user, name_standalone_user, parse_identity

ALONE = name_standalone_user("")
OF_POOL = name_pool_user("")


class Logins:
    """Component that creates and deletes logins. It remembers the logins that it created, to create each one only once.

    The newest login of a user depends on the master key and on the status of the pool at the API server.

    Attributes:
        keys: the master keys.
    """

    def __init__(self, registry: Registry, admin: BrokerAdmin) -> None:
        self.keys = MasterKeys(b"")
        self._registry = registry
        self._admin = admin
        self._made: dict[str, UserLimits] = {}
        self._cut_off: set[str] = set()
        self._seen: defaultdict[str, set[str]] = defaultdict(set)

    def get_newest(self, identity: str) -> str:
        """Return the newest login of a user, with which new workers connect."""
        return make_login(identity, self.keys.number, self._generation(identity))

    def has_newest(self, identity: str) -> bool:
        """Return whether this process has created the user's newest login, and has not forgotten it since then."""
        return self.get_newest(identity) in self._made

    async def ensure(self, identity: str, limits: UserLimits) -> None:
        """Create the newest login of a user with these limits, unless this process has created it already.

        Raises:
            MessagingError: the broker did not create it.
        """
        await self._ensure(self.get_newest(identity), limits)

    async def ensure_former(self, identity: str, limits: UserLimits) -> None:
        """Create the former logins that workers may still use, after the broker has lost its data.

        Raises:
            MessagingError: the broker did not create them.
        """
        lately = was_changed_lately(self._credentials(identity), get_time())
        for login in list_former_logins(identity, self.keys, self._generation(identity), changed_lately=lately):
            await self._ensure(login, limits)

    async def cut_off(self, identity: str) -> None:
        """Close the connections of all logins of a user, and forbid new connections until :meth:`release`.

        Raises:
            MessagingError: the broker did not close or forbid them.
        """
        self._cut_off.add(identity)
        logins = [login for login in await self.list_found() if parse_identity(login) == identity]
        for login in logins:
            await self._admin.limit_user(login, NO_CONNECTIONS)
            self._made[login] = NO_CONNECTIONS
        for login in logins:
            await self._admin.close_connections(login)

    async def release(self, identity: str, limits: UserLimits) -> None:
        """Permit a user that was cut off to connect again. A user that was deleted meanwhile is not created again.

        Raises:
            MessagingError: the broker did not change the limits.
        """
        self._cut_off.discard(identity)
        for login in await self.list_found():
            if parse_identity(login) == identity:
                self._made.pop(login, None)
                await self._admin.limit_user(login, limits)

    async def _ensure(self, login: str, limits: UserLimits) -> None:
        if parse_identity(login) in self._cut_off:
            limits = NO_CONNECTIONS
        if self._made.get(login) == limits:
            return
        if login not in self._made:
            self._seen[parse_identity(login)].add(login)
            await self._admin.ensure_user(build_worker_user_spec(login), self.keys.derive_password(login))
        await self._admin.limit_user(login, limits)
        self._made[login] = limits

    async def delete(self, login: str) -> None:
        """Delete a login, which ends its connections.

        Raises:
            MessagingError: the broker did not delete it.
        """
        await self._admin.delete_user(login)
        self._made.pop(login, None)
        identity = parse_identity(login)
        self._seen[identity].discard(login)
        if not self._seen[identity]:
            del self._seen[identity]

    async def delete_user(self, identity: str) -> None:
        """Delete all logins of a user that this process knows.

        Raises:
            MessagingError: the broker did not delete them.
        """
        for login in {identity, self.get_newest(identity), *self._seen.get(identity, ())}:
            await self.delete(login)

    async def list_found(self) -> frozenset[str]:
        """Return the logins of pools and workers that exist at the broker.

        Raises:
            MessagingError: the broker did not answer.
        """
        names = {name for name in await self._admin.list_permitted_users() if name.startswith((ALONE, OF_POOL))}
        for name in names:
            self._seen[parse_identity(name)].add(name)
        return frozenset(names)

    def find_former(self, found: Iterable[str]) -> dict[str, set[str]]:
        """Return the former logins among the given logins, by the identity of their user."""
        former: dict[str, set[str]] = {}
        for login in found:
            if login != self.get_newest(identity := parse_identity(login)):
                former.setdefault(identity, set()).add(login)
        return former

    def forget(self) -> None:
        """Forget which logins exist, because the broker may have lost them; the next use creates a login again."""
        self._made.clear()

    def _credentials(self, identity: str) -> BrokerCredentials | None:
        if not identity.startswith(OF_POOL):
            return None
        pool = next(iter(self._registry.pools.list_by("uid", identity.removeprefix(OF_POOL))), None)
        return pool.status.broker_credentials if pool is not None else None

    def _generation(self, identity: str) -> int:
        credentials = self._credentials(identity)
        return credentials.generation if credentials is not None else 0
