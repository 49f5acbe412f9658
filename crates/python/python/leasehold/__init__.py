"""Distributed locks that report their loss, on engines that you already run.

>>> import leasehold
>>> locks = leasehold.connect("memory:")
>>> with locks.mutex("order/17", wait=10) as guard:
...     guard.token > 0
True
"""

from leasehold._errors import (
    Busy,
    Closed,
    Forked,
    InvalidArgument,
    LockError,
    LockLost,
    Misconfigured,
    Refused,
    Unreachable,
)
from leasehold._leasehold import Guard, Owner, forked as _forked
from leasehold._locks import Locks, connect
from leasehold._lost import Lost
from leasehold._request import Request

__all__ = [
    "Busy",
    "Closed",
    "Forked",
    "Guard",
    "InvalidArgument",
    "LockError",
    "LockLost",
    "Locks",
    "Lost",
    "Misconfigured",
    "Owner",
    "Refused",
    "Request",
    "Unreachable",
    "connect",
]


def _watch_forks() -> None:
    import os

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forked)


_watch_forks()
