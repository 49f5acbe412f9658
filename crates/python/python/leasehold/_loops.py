"""The event loops in which operations are awaited."""

from __future__ import annotations

import weakref
from asyncio import AbstractEventLoop, Future, get_running_loop

from leasehold._leasehold import WakeQueue

_queues: weakref.WeakKeyDictionary[AbstractEventLoop, WakeQueue] = weakref.WeakKeyDictionary()


def new_wait() -> tuple[WakeQueue, Future[None]]:
    """The queue of wake-ups of the running loop, and a future that a task may yield to that loop."""
    loop = get_running_loop()
    queue = _queues.get(loop)
    if queue is None:
        queue = WakeQueue()
        loop.add_reader(queue.fileno(), queue.drain)
        _queues[loop] = queue
    future = loop.create_future()
    # As `Future.__await__` does before it yields itself.
    future._asyncio_future_blocking = True  # type: ignore[attr-defined]
    return queue, future
