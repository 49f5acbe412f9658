"""``Locks``: the locks of one engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Union

from leasehold import _leasehold
from leasehold._leasehold import Locks as _Locks, Owner
from leasehold._request import Request, Seconds

if TYPE_CHECKING:
    # Type checkers have this module themselves: it need not be installed.
    from typing_extensions import TypedDict, Unpack

    from leasehold._all import All
    from leasehold._election import Election
    from leasehold._once import Decode, Encode, Key, Once
    from leasehold._view import Diagnostic, Guarantee, View

    class RequestOptions(TypedDict, total=False):
        """The options of a request: see :meth:`Locks.mutex`."""

        ttl: Optional[Seconds]
        wait: Optional[Seconds]
        at_least: Optional[Seconds]
        owner: Optional[Union[str, Owner]]
        renew: bool
        renew_every: Optional[Seconds]
        max_hold: Optional[Seconds]
        attempts: Optional[int]
        max_waiting: Optional[int]


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

    * ``owner``: the text of holds and waiters that others see; by default ``user@host:pid``.
    * ``prefix``: what stands before each name in the keys or tables of the engine. ``schema``: the schema of the tables
      on PostgreSQL, the database on MySQL. ``password``: in the place of one in the URL.
    * ``connect_timeout``: for how long a server that was never reached is tried, 5 s by default.
    * ``max_connections``: to PostgreSQL and MySQL.
    * ``max_waiting``: how many requests of this process may wait for one name; one more is :class:`Busy` at once.
    * ``when_unreachable``: ``"wait"`` (the default) or ``"fail"``: what requests do while the engine cannot be reached.

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
    """The locks of one engine. :func:`connect` makes them.

    >>> import leasehold
    >>> leasehold.connect("memory:")
    <leasehold.Locks on memory>
    """

    def mutex(
        self,
        name: str,
        *,
        ttl: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        at_least: Optional[Seconds] = None,
        owner: Optional[Union[str, Owner]] = None,
        renew: bool = True,
        renew_every: Optional[Seconds] = None,
        max_hold: Optional[Seconds] = None,
        attempts: Optional[int] = None,
        max_waiting: Optional[int] = None,
    ) -> Request:
        """A request for the exclusive hold of ``name``.

        Durations are seconds, or a ``timedelta``. A wrong value raises :class:`InvalidArgument` at this call.

        * ``ttl``: the lease time, 30 s by default: how long others wait after this process died.
        * ``wait``: how long to wait; by default until the grant. 0: one try.
        * ``at_least``: the name stays taken for that long after the grant, also after the release.
        * ``owner``: the text that others see, or an :class:`Owner`, which takes its locks again.
        * ``renew``: whether the lease is renewed in the background. ``renew_every``: how often, from a twentieth to
          half of the ttl; by default a third.
        * ``max_hold``: the hold is lost after that time.
        * ``attempts``: tries so many times, and does not enter the queue.
        * ``max_waiting``: how many requests of this process may wait for the name; one more is :class:`Busy` at once.

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

    def read(self, name: str, **options: Unpack[RequestOptions]) -> Request:
        """A request for a hold of ``name`` that readers share. The options are those of :meth:`mutex`.

        >>> import leasehold
        >>> locks = leasehold.connect("memory:")
        >>> with locks.read("prices") as one, locks.read("prices") as another:
        ...     one.mode
        'shared'
        """
        return Request(self, "read", name, **options)

    def write(self, name: str, **options: Unpack[RequestOptions]) -> Request:
        """A request for the exclusive hold of ``name`` among readers. The options are those of :meth:`mutex`.

        >>> import leasehold
        >>> with leasehold.connect("memory:").write("prices") as guard:
        ...     guard.mode
        'exclusive'
        """
        return Request(self, "write", name, **options)

    def permits(self, name: str, n: int, limit: int, **options: Unpack[RequestOptions]) -> Request:
        """A request for ``n`` of the ``limit`` permits of a semaphore. The options are those of :meth:`mutex`.

        >>> import leasehold
        >>> with leasehold.connect("memory:").permits("printer", 1, 4) as guard:
        ...     guard.mode
        'permit'
        """
        return Request(self, (n, limit), name, **options)

    def all(self, **options: Unpack[RequestOptions]) -> All:
        """A request for several names, all or none: see :class:`All`. The options are those of :meth:`mutex`.

        >>> import leasehold
        >>> locks = leasehold.connect("memory:")
        >>> with locks.all(wait=2).mutex("order/17").read("prices") as guards:
        ...     guards["order/17"].check()
        True
        """
        from leasehold._all import All

        return All(self, (), **options)

    def election(
        self,
        name: str,
        *,
        value: Optional[str] = None,
        owner: Optional[str] = None,
        ttl: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        renew_every: Optional[Seconds] = None,
        max_hold: Optional[Seconds] = None,
        max_waiting: Optional[int] = None,
    ) -> Election:
        """The leader election of this name: see :class:`Election`. ``value``: what a leader publishes.

        >>> import leasehold
        >>> locks = leasehold.connect("memory:")
        >>> with locks.election("scheduler", value="10.0.0.7:8080", wait=5) as leading:
        ...     leading.check()
        True
        """
        from leasehold._election import Election

        return Election(
            self,
            name,
            value=value,
            owner=owner,
            ttl=ttl,
            wait=wait,
            renew_every=renew_every,
            max_hold=max_hold,
            max_waiting=max_waiting,
        )

    def once(
        self,
        key: Key,
        *,
        ttl: Optional[Seconds] = None,
        keep: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        digest: Optional[bytes] = None,
        encode: Optional[Encode] = None,
        decode: Optional[Decode] = None,
        owner: Optional[str] = None,
        renew_every: Optional[Seconds] = None,
        max_hold: Optional[Seconds] = None,
        max_waiting: Optional[int] = None,
    ) -> Once:
        """Work that is done one time for ``key``: see :class:`Once`.

        ``keep``: for how long the result is stored, a day by default. ``digest``: the SHA-256 of the payload; a repeat
        with another one is refused. ``encode`` and ``decode`` make bytes of results, and results of bytes.

        >>> import leasehold
        >>> locks = leasehold.connect("memory:of-once")
        >>> locks.once("order-17", keep=3600).run(lambda: b"receipt 1")
        b'receipt 1'
        """
        from leasehold._once import Once

        return Once(
            self,
            key,
            encode=encode,
            decode=decode,
            ttl=ttl,
            keep=keep,
            wait=wait,
            digest=digest,
            owner=owner,
            renew_every=renew_every,
            max_hold=max_hold,
            max_waiting=max_waiting,
        )

    def ping(self) -> None:
        """Asks the engine whether it can be reached and accepts the login.

        >>> import leasehold
        >>> leasehold.connect("memory:").ping()
        """
        self._ping().wait()

    async def ping_async(self) -> None:
        """:meth:`ping`, for tasks.

        >>> import asyncio, leasehold
        >>> asyncio.run(leasehold.connect("memory:").ping_async())
        """
        await self._ping()

    def close(self, limit: Seconds = 5.0) -> int:
        """Ends all waits, waits until the holds are released, and returns how many were not within ``limit``.

        It does not release what the program still holds: stop the work before.

        >>> import leasehold
        >>> leasehold.connect("memory:").close()
        0
        """
        left: int = self._close(limit).wait()
        return left

    async def close_async(self, limit: Seconds = 5.0) -> int:
        """:meth:`close`, for tasks.

        >>> import asyncio, leasehold
        >>> asyncio.run(leasehold.connect("memory:").close_async())
        0
        """
        left: int = await self._close(limit)
        return left

    def show(self, name: str) -> View:
        """The holders and the waiters of ``name``. For people: the answer is of the past when it arrives.

        >>> import leasehold
        >>> locks = leasehold.connect("memory:", owner="importer")
        >>> with locks.mutex("order/17"):
        ...     locks.show("order/17").holders[0].owner
        'importer'
        """
        view: View = _leasehold.show(self, name).wait()
        return view

    async def show_async(self, name: str) -> View:
        """:meth:`show`, for tasks.

        >>> import asyncio, leasehold
        >>> asyncio.run(leasehold.connect("memory:").show_async("order/17")).name
        'order/17'
        """
        view: View = await _leasehold.show(self, name)
        return view

    def list(self, prefix: str = "") -> List[View]:
        """The names that begin with ``prefix`` and have a holder or a waiter.

        >>> import leasehold
        >>> locks = leasehold.connect("memory:")
        >>> with locks.mutex("order/17"):
        ...     [view.name for view in locks.list("order/")]
        ['order/17']
        """
        views: List[View] = _leasehold.list(self, prefix).wait()
        return views

    async def list_async(self, prefix: str = "") -> List[View]:
        """:meth:`list`, for tasks.

        >>> import asyncio, leasehold
        >>> asyncio.run(leasehold.connect("memory:").list_async("order/"))
        []
        """
        views: List[View] = await _leasehold.list(self, prefix)
        return views

    def break_hold(self, name: str, token: int, *, force: bool = False) -> bool:
        """Ends the hold of ``name`` with this token; ``False`` if nothing is held under it.

        With ``force`` the next grant does not wait until the holder releases or its lease ends: then only a fence
        protects the resource from the holder.

        >>> import leasehold
        >>> locks = leasehold.connect("memory:")
        >>> guard = locks.mutex("order/17").acquire()
        >>> locks.break_hold("order/17", guard.token, force=True)
        True
        """
        is_done: bool = _leasehold.break_hold(self, name, token, force).wait()
        return is_done

    async def break_hold_async(self, name: str, token: int, *, force: bool = False) -> bool:
        """:meth:`break_hold`, for tasks.

        >>> import asyncio, leasehold
        >>> asyncio.run(leasehold.connect("memory:").break_hold_async("order/17", 1))
        False
        """
        is_done: bool = await _leasehold.break_hold(self, name, token, force)
        return is_done

    def guarantee(self) -> Guarantee:
        """What the engine promises with its present settings, and which settings lower the promise.

        >>> import leasehold
        >>> leasehold.connect("memory:").guarantee().level
        'lease-bounded'
        """
        guarantee: Guarantee = _leasehold.guarantee(self).wait()
        return guarantee

    async def guarantee_async(self) -> Guarantee:
        """:meth:`guarantee`, for tasks.

        >>> import asyncio, leasehold
        >>> asyncio.run(leasehold.connect("memory:").guarantee_async()).level
        'lease-bounded'
        """
        guarantee: Guarantee = await _leasehold.guarantee(self)
        return guarantee

    def diagnose(self) -> List[Diagnostic]:
        """What an operator should know about the servers, their clocks and the rights of this user.

        >>> import leasehold
        >>> [diagnostic.severity for diagnostic in leasehold.connect("memory:").diagnose()]
        ['good']
        """
        diagnostics: List[Diagnostic] = _leasehold.diagnose(self).wait()
        return diagnostics

    async def diagnose_async(self) -> List[Diagnostic]:
        """:meth:`diagnose`, for tasks.

        >>> import asyncio, leasehold
        >>> len(asyncio.run(leasehold.connect("memory:").diagnose_async()))
        1
        """
        diagnostics: List[Diagnostic] = await _leasehold.diagnose(self)
        return diagnostics

    def __reduce__(self) -> Any:
        url, options = self._settings()
        return (_reconnect, (type(self), url, options))

    def __repr__(self) -> str:
        # Not the URL, which may have a password.
        return f"<leasehold.Locks on {self.engine}>"


def _reconnect(locks_class: type[Locks], url: str, options: dict[str, Any]) -> Locks:
    return locks_class(url, **options)
