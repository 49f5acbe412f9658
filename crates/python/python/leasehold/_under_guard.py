"""Work of tasks under a guard: its release, and what a loss of the hold does."""

from __future__ import annotations

from asyncio import CancelledError, ensure_future, wait
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Optional

from leasehold._errors import LockError, LockLost

if TYPE_CHECKING:
    from leasehold._leasehold import Guard


async def release(guard: Guard) -> Optional[LockError]:
    """Releases the hold, unless the block has done it. Returns what went wrong."""
    if guard.released:
        return None
    try:
        await guard.release_async()
    except LockError as error:
        return error
    return None


def release_unawaited(guard: Guard) -> None:
    """Begins the release, unless it has begun, and does not wait for the answer."""
    if not guard.released:
        guard.release_async().close()


async def run_under(guard: Guard, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Runs ``work`` in a task of its own, which is cancelled when the hold is lost."""
    task = ensure_future(work())
    reasons: list[str] = []

    def cancel(reason: str) -> None:
        reasons.append(reason)
        task.cancel()

    lost = guard._lost()
    lost.start(cancel)
    try:
        await wait([task])
    except CancelledError:
        task.cancel()
        await wait([task])
        raise
    finally:
        lost.close()
    if reasons and task.cancelled():
        raise lost_work_error(guard, reasons[0])
    return task.result()


def lost_work_error(guard: Guard, reason: str) -> LockLost:
    """The exception of work that a loss has cancelled."""
    return LockLost(
        f"the work that is done one time was cancelled: the hold of {guard.name!r} was lost: {reason}",
        kind="lost",
        name=guard.name,
        engine=guard.engine,
        reason=reason,
    )


def tell_loss(guard: Optional[Guard], reason: str) -> None:
    """Sets the event of the loss, so that the task that is cancelled sees it. Several guards have no event."""
    tell = getattr(guard, "_tell_loss", None)
    if tell is not None:
        tell(reason)
