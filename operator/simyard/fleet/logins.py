"""The logins of the users of pools, and of workers without one, at the broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from simyard.api.worker_pool import BrokerCredentials
from simyard.fleet.registry import Registry, now
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.credentials import MasterKeys, former_logins, login_name
from simyard.messaging.topology import NO_USE, UserLimits, worker_user_spec
from simyard.plan.rotation import changed_lately
from simyard_adapter.wire import identity_of, pool_user, standalone_user

ALONE = standalone_user("")
OF_POOL = pool_user("")


class Logins:
    """Makes and deletes logins; remembers those that were made or seen, so that none is made twice.

    Which login is the newest depends on the master key and on the status of the pool, both as the API server has them.

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

    def newest(self, identity: str) -> str:
        """Return the login of a user under which new workers connect."""
        return login_name(identity, self.keys.number, self._generation(identity))

    def has_newest(self, identity: str) -> bool:
        """Whether the newest login was made by this process, and nothing is known to have removed it."""
        return self.newest(identity) in self._made

    async def ensure(self, identity: str, limits: UserLimits) -> None:
        """Make the newest login with these limits.

        Raises:
            MessagingError: the broker did not do it.
        """
        await self._ensure(self.newest(identity), limits)

    async def ensure_former(self, identity: str, limits: UserLimits) -> None:
        """Make the logins that workers may still use: for a broker that has lost its data.

        Raises:
            MessagingError: the broker did not do it.
        """
        lately = changed_lately(self._credentials(identity), now())
        for login in former_logins(identity, self.keys, self._generation(identity), changed_lately=lately):
            await self._ensure(login, limits)

    async def cut_off(self, identity: str) -> None:
        """Close the connections of a user under all of its logins, and permit it none until it is released.

        Raises:
            MessagingError: the broker did not do it.
        """
        self._cut_off.add(identity)
        logins = [login for login in await self.found() if identity_of(login) == identity]
        for login in logins:
            await self._admin.limit_user(login, NO_USE)
            self._made[login] = NO_USE
        for login in logins:
            await self._admin.close_connections(login)

    async def release(self, identity: str, limits: UserLimits) -> None:
        """Permit a user that was cut off its connections again; a user that is gone stays so.

        Raises:
            MessagingError: the broker did not do it.
        """
        self._cut_off.discard(identity)
        for login in await self.found():
            if identity_of(login) == identity:
                self._made.pop(login, None)
                await self._admin.limit_user(login, limits)

    async def _ensure(self, login: str, limits: UserLimits) -> None:
        if identity_of(login) in self._cut_off:
            limits = NO_USE
        if self._made.get(login) == limits:
            return
        if login not in self._made:
            self._seen[identity_of(login)].add(login)
            await self._admin.ensure_user(worker_user_spec(login), self.keys.password(login))
        await self._admin.limit_user(login, limits)
        self._made[login] = limits

    async def delete(self, login: str) -> None:
        """Delete a login, which ends its connections.

        Raises:
            MessagingError: the broker did not do it.
        """
        await self._admin.delete_user(login)
        self._made.pop(login, None)
        identity = identity_of(login)
        self._seen[identity].discard(login)
        if not self._seen[identity]:
            del self._seen[identity]

    async def delete_user(self, identity: str) -> None:
        """Delete every login of a user that may exist.

        Raises:
            MessagingError: the broker did not do it.
        """
        for login in {identity, self.newest(identity), *self._seen.get(identity, ())}:
            await self.delete(login)

    async def found(self) -> frozenset[str]:
        """Return the logins that are at the broker, of all pools and workers.

        Raises:
            MessagingError: the broker did not answer.
        """
        names = {name for name in await self._admin.permitted_users() if name.startswith((ALONE, OF_POOL))}
        for name in names:
            self._seen[identity_of(name)].add(name)
        return frozenset(names)

    def former(self, found: Iterable[str]) -> dict[str, set[str]]:
        """Return those that are not the newest, by identity."""
        former: dict[str, set[str]] = {}
        for login in found:
            if login != self.newest(identity := identity_of(login)):
                former.setdefault(identity, set()).add(login)
        return former

    def forget(self) -> None:
        """Make every login again when it is asked for: the broker may have lost them."""
        self._made.clear()

    def _credentials(self, identity: str) -> BrokerCredentials | None:
        if not identity.startswith(OF_POOL):
            return None
        pool = next(iter(self._registry.pools.by("uid", identity.removeprefix(OF_POOL))), None)
        return pool.status.broker_credentials if pool is not None else None

    def _generation(self, identity: str) -> int:
        credentials = self._credentials(identity)
        return credentials.generation if credentials is not None else 0
