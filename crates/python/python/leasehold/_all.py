"""``All``: a request for several names, all or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Union

from leasehold._errors import Busy
from leasehold._leasehold import All as _All, Guards

if TYPE_CHECKING:
    from leasehold._locks import Locks
    from leasehold._request import Seconds


class All(_All):
    """A request for several names: all or none. ``locks.all()`` begins one; each method adds a name.

    The names are acquired in one order, whatever the order of the calls, so two such requests never wait for each
    other in a circle. Use it as a context manager, in threads and tasks; the guards are found by name.

    >>> import leasehold
    >>> locks = leasehold.connect("memory:")
    >>> with locks.all(wait=2).mutex("order/17").read("prices").permits("printer", 1, 4) as guards:
    ...     guards["order/17"].token > 0, guards.check(), list(guards)
    (True, True, ['order/17', 'prices', 'printer'])
    """

    def __init__(self, locks: Locks, entries: tuple[tuple[Any, str], ...], **options: Any) -> None:
        # The native part has taken the arguments in its `__new__`.
        self._request = (locks, entries, options)

    def mutex(self, name: str) -> All:
        """Adds the exclusive hold of ``name``.

        >>> import leasehold
        >>> with leasehold.connect("memory:").all().mutex("a").mutex("b") as guards:
        ...     len(guards)
        2
        """
        return self._with("mutex", name)

    def read(self, name: str) -> All:
        """Adds a hold of ``name`` that readers share.

        >>> import leasehold
        >>> with leasehold.connect("memory:").all().read("prices") as guards:
        ...     guards["prices"].mode
        'shared'
        """
        return self._with("read", name)

    def write(self, name: str) -> All:
        """Adds the exclusive hold of ``name`` among readers.

        >>> import leasehold
        >>> with leasehold.connect("memory:").all().write("prices") as guards:
        ...     guards["prices"].mode
        'exclusive'
        """
        return self._with("mutex", name)

    def permits(self, name: str, n: int, limit: int) -> All:
        """Adds ``n`` of the ``limit`` permits of a semaphore.

        >>> import leasehold
        >>> with leasehold.connect("memory:").all().permits("printer", 2, 8) as guards:
        ...     guards["printer"].mode
        'permit'
        """
        return self._with((n, limit), name)

    def _with(self, kind: Union[str, tuple[int, int]], name: str) -> All:
        locks, entries, options = self._request
        return type(self)(locks, (*entries, (kind, name)), **options)

    def try_acquire(self) -> Optional[Guards]:
        """Acquires all names if they are free now; ``None`` if one of them is taken.

        >>> import leasehold
        >>> locks = leasehold.connect("memory:")
        >>> with locks.mutex("a"):
        ...     locks.all().mutex("a").mutex("b").try_acquire() is None
        True
        """
        try:
            guards: Guards = self._acquire(0).wait()
        except Busy:
            return None
        return guards

    async def acquire_async(self, wait: Optional[Seconds] = None) -> Guards:
        """``acquire``, for tasks. A cancelled task leaves nothing behind.

        >>> import asyncio, leasehold
        >>> locks = leasehold.connect("memory:")
        >>> async def main():
        ...     guards = await locks.all().mutex("a").mutex("b").acquire_async()
        ...     await guards.release_async()
        >>> asyncio.run(main())
        """
        guards: Guards = await self._acquire(wait)
        return guards

    async def try_acquire_async(self) -> Optional[Guards]:
        """:meth:`try_acquire`, for tasks.

        >>> import asyncio, leasehold
        >>> request = leasehold.connect("memory:").all().mutex("a").mutex("b")
        >>> asyncio.run(request.try_acquire_async()) is None
        False
        """
        try:
            return await self.acquire_async(0)
        except Busy:
            return None

    def __reduce__(self) -> Any:
        locks, entries, options = self._request
        return (_rebuild, (type(self), locks, entries, options))


def _rebuild(all_class: type[All], locks: Locks, entries: tuple[tuple[Any, str], ...], options: dict[str, Any]) -> All:
    return all_class(locks, entries, **options)
