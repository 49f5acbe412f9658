"""What the locks of redis-py's signature for threads and for tasks have in common."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, ClassVar, Optional, Union

from leasehold._leasehold import Guard
from leasehold.compat._errors import LockError
from leasehold.compat._servers import locks_of, name_of


class LockOfRedis:
    """The settings of a lock, as redis-py names them."""

    #: Whether tasks await the lock.
    _for_tasks: ClassVar[bool]

    def __init__(
        self,
        redis: Any,
        name: Union[str, bytes, memoryview],
        timeout: Optional[float] = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: Optional[float] = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.redis = redis
        self.name = name_of(name)
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = threading.local() if self.thread_local else SimpleNamespace()
        self.local.token = None
        self._locks = locks_of(redis, for_tasks=self._for_tasks)

    def _timed(self, guard: Optional[Guard], verb: str) -> Guard:
        """The guard, if the lock can be extended."""
        if guard is None:
            raise LockError(f"Cannot {verb} an unlocked lock")
        if self.timeout is None:
            raise LockError(f"Cannot {verb} a lock with no timeout")
        return guard
