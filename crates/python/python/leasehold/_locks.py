"""``Locks``: the locks of one engine."""

from __future__ import annotations

from typing import Any, Optional

from leasehold._leasehold import Locks as _Locks, Owner
from leasehold._request import Request, Seconds


def connect(
    url: str,
    *,
    owner: Optional[str] = None,
    prefix: Optional[str] = None,
    schema: Optional[str] = None,
    password: Optional[str] = None,
    connect_timeout: Optional[Seconds] = None,
    max_connections: Optional[int] = None,
    max_waiting: Optional[int] = None,
    when_unreachable: Optional[str] = None,
) -> Locks:
    """Returns the locks of the engine that ``url`` names: ``"redis://localhost"``, ``"file:/run/locks"``.

    It checks the URL and contacts no server. Make one ``Locks`` for each engine, and use it from all threads, tasks
    and forked children.

    >>> import leasehold
    >>> locks = leasehold.connect("memory:", owner="shop, node 3")
    >>> locks.engine
    'memory'
    """
    return Locks(
        url,
        owner=owner,
        prefix=prefix,
        schema=schema,
        password=password,
        connect_timeout=connect_timeout,
        max_connections=max_connections,
        max_waiting=max_waiting,
        when_unreachable=when_unreachable,
    )


class Locks(_Locks):
    """The locks of one engine. :func:`connect` makes them."""

    def mutex(
        self,
        name: str,
        *,
        ttl: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        at_least: Optional[Seconds] = None,
        owner: Optional[str | Owner] = None,
        renew: bool = True,
        renew_every: Optional[Seconds] = None,
        max_hold: Optional[Seconds] = None,
        attempts: Optional[int] = None,
        max_waiting: Optional[int] = None,
    ) -> Request:
        """A request for the exclusive hold of ``name``.

        ``ttl``: the lease time, 30 s by default. ``wait``: how long to wait; by default until the grant. ``at_least``:
        the name stays taken for that long. Durations are seconds, or a ``timedelta``.

        >>> import leasehold
        >>> locks = leasehold.connect("memory:")
        >>> with locks.mutex("order/17", ttl=10, wait=2) as guard:
        ...     guard.check()
        True
        """
        return Request(
            self,
            "mutex",
            name,
            ttl=ttl,
            wait=wait,
            at_least=at_least,
            owner=owner,
            renew=renew,
            renew_every=renew_every,
            max_hold=max_hold,
            attempts=attempts,
            max_waiting=max_waiting,
        )

    def read(self, name: str, **options: Any) -> Request:
        """A request for a hold of ``name`` that readers share. The options are those of :meth:`mutex`."""
        return Request(self, "read", name, **options)

    def write(self, name: str, **options: Any) -> Request:
        """A request for the exclusive hold of ``name`` among readers. The options are those of :meth:`mutex`."""
        return Request(self, "write", name, **options)

    def permits(self, name: str, n: int, limit: int, **options: Any) -> Request:
        """A request for ``n`` of the ``limit`` permits of a semaphore. The options are those of :meth:`mutex`."""
        return Request(self, (n, limit), name, **options)

    def ping(self) -> None:
        """Asks the engine whether it can be reached and accepts the login."""
        self._ping().wait()

    async def ping_async(self) -> None:
        """:meth:`ping`, for tasks."""
        await self._ping()

    def close(self, limit: Seconds = 5.0) -> int:
        """Ends all holds and waits, and returns how many ends were not confirmed within ``limit``."""
        return self._close(limit).wait()

    def __reduce__(self) -> Any:
        url, options = self._settings()
        return (_reconnect, (type(self), url, options))

    def __repr__(self) -> str:
        # Not the URL, which may have a password.
        return f"<leasehold.Locks on {self.engine}>"


def _reconnect(locks_class: type[Locks], url: str, options: dict[str, Any]) -> Locks:
    return locks_class(url, **options)
