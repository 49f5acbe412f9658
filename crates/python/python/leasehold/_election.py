"""``Election``: one leader among several processes, which everybody can find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from leasehold._errors import Busy
from leasehold._leasehold import Election as _Election, Leading, Watch as _Watch

if TYPE_CHECKING:
    from leasehold._locks import Locks
    from leasehold._request import Seconds
    from leasehold._view import Leader, Leadership


class Election(_Election):
    """A leader election: an exclusive hold of a name, whose holder publishes a value. ``locks.election`` makes one.

    As a context manager it campaigns, and resigns at the end of the block:

    >>> import leasehold
    >>> locks = leasehold.connect("memory:")
    >>> with locks.election("scheduler", value="10.0.0.7:8080") as leading:
    ...     leading.term == locks.election("scheduler").leader().term
    True
    """

    def __init__(self, locks: Locks, name: str, **options: Any) -> None:
        # The native part has taken the arguments in its `__new__`.
        self._request = (locks, name, options)

    def try_campaign(self) -> Optional[Leading]:
        """Leads if nobody else does now; ``None`` otherwise.

        >>> import leasehold
        >>> election = leasehold.connect("memory:").election("scheduler")
        >>> with election:
        ...     election.try_campaign() is None
        True
        """
        try:
            leading: Leading = self._campaign(0).wait()
        except Busy:
            return None
        return leading

    async def campaign_async(self, wait: Optional[Seconds] = None) -> Leading:
        """``campaign``, for tasks. A cancelled task leaves nothing behind.

        >>> import asyncio, leasehold
        >>> async def main():
        ...     leading = await leasehold.connect("memory:").election("scheduler").campaign_async()
        ...     await leading.resign_async()
        >>> asyncio.run(main())
        """
        leading: Leading = await self._campaign(wait)
        return leading

    async def try_campaign_async(self) -> Optional[Leading]:
        """:meth:`try_campaign`, for tasks.

        >>> import asyncio, leasehold
        >>> election = leasehold.connect("memory:").election("scheduler")
        >>> asyncio.run(election.try_campaign_async()) is None
        False
        """
        try:
            return await self.campaign_async(0)
        except Busy:
            return None

    def leader(self) -> Optional[Leader]:
        """The leader now; ``None`` if nobody leads. One request.

        >>> import leasehold
        >>> leasehold.connect("memory:").election("scheduler").leader() is None
        True
        """
        leader: Optional[Leader] = self._leader().wait()
        return leader

    async def leader_async(self) -> Optional[Leader]:
        """:meth:`leader`, for tasks.

        >>> import asyncio, leasehold
        >>> asyncio.run(leasehold.connect("memory:").election("scheduler").leader_async()) is None
        True
        """
        leader: Optional[Leader] = await self._leader()
        return leader

    def observe(self) -> LeaderWatch:
        """Follows who leads, without being a candidate: for ``for`` and ``async for``.

        >>> import leasehold
        >>> election = leasehold.connect("memory:").election("scheduler", value="10.0.0.7:8080")
        >>> with election:
        ...     for leadership in election.observe():
        ...         print(leadership.state, leadership.leader.value)
        ...         break
        held 10.0.0.7:8080
        """
        return LeaderWatch(self)

    def __reduce__(self) -> Any:
        locks, name, options = self._request
        return (_rebuild, (type(self), locks, name, options))


def _rebuild(election_class: type[Election], locks: Locks, name: str, options: dict[str, Any]) -> Election:
    return election_class(locks, name, **options)


class LeaderWatch:
    """Follows who leads. It never ends, and skips a state that was over before it was read.

    >>> import leasehold
    >>> watch = leasehold.connect("memory:").election("scheduler").observe()
    >>> next(watch).state
    'vacant'
    """

    def __init__(self, election: Election) -> None:
        self._watch: _Watch = election._observe()

    def __iter__(self) -> LeaderWatch:
        return self

    def __next__(self) -> Leadership:
        leadership: Leadership = self._watch._changed().wait()
        return leadership

    def __aiter__(self) -> LeaderWatch:
        return self

    async def __anext__(self) -> Leadership:
        leadership: Leadership = await self._watch._changed()
        return leadership
