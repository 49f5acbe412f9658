"""The loss of a hold, for threads and for tasks."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Generator, Optional

from leasehold._errors import InvalidArgument

if TYPE_CHECKING:
    from leasehold._leasehold import Guard, LossCalls


class Lost(threading.Event):
    """Set when the hold is lost, before anybody else can be granted the name. ``await`` gives the reason.

    Any number of threads and tasks may wait for it. It does not keep the hold. It is set before a call or a block
    raises ``LockLost``, and before a task is cancelled for the loss. It is never set, and an ``await`` in progress
    never ends, after the hold was released without a loss, or its guard was dropped.

    >>> import leasehold
    >>> with leasehold.connect("memory:").mutex("order/17") as guard:
    ...     guard.lost.is_set()
    False
    """

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        #: Why the hold was lost, as one word: ``"lapsed"``. ``None`` until then.
        self.reason: Optional[str] = None
        self._guard = weakref.ref(guard)
        if guard._loss is not None:
            self._tell(guard._loss)
        elif not guard.released:
            guard._set_on_loss(self._tell)

    def _tell(self, reason: str) -> None:
        self.reason = reason
        self.set()

    async def _wait(self) -> str:
        if self.reason is not None:
            return self.reason
        operation = self._watch()
        reason: str = await operation
        return reason

    def _watch(self) -> Any:
        guard = self._guard()
        if guard is None:
            raise InvalidArgument("the guard was dropped, so its hold cannot be lost any more", kind="invalid")
        return guard._lost()

    def __await__(self) -> Generator[Any, None, str]:
        return self._wait().__await__()


def start_callbacks(calls: LossCalls) -> None:
    """Starts the thread that calls the callbacks of users for lost holds."""
    threading.Thread(target=_call_back, args=(calls,), name="leasehold lost", daemon=True).start()


def _call_back(calls: LossCalls) -> None:
    while (call := calls.next()) is not None:
        callback, reason = call
        if callback is not None:
            try:
                callback(reason)
            except BaseException:
                # As if it were the function of a thread: the other callbacks are called all the same.
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        # The next call may come much later.
        del call, callback
