"""The loss of a hold, for threads and for tasks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generator, Optional

if TYPE_CHECKING:
    from leasehold._leasehold import Guard


class Lost(threading.Event):
    """Set when the hold is lost, before anybody else can be granted the name. ``await`` gives the reason.

    >>> import leasehold
    >>> with leasehold.connect("memory:").mutex("order/17") as guard:
    ...     guard.lost.is_set()
    False
    """

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        #: Why the hold was lost, as one word: ``"lapsed"``. ``None`` until then.
        self.reason: Optional[str] = None
        self._operation = guard._lost()
        guard.on_lost(self._tell)

    def _tell(self, reason: str) -> None:
        self.reason = reason
        self.set()

    def __await__(self) -> Generator[object, None, str]:
        return self._operation.__await__()
