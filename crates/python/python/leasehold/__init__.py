"""Distributed locks that report their loss, on engines that you already run.

>>> import leasehold
>>> locks = leasehold.connect("memory:")
>>> with locks.mutex("order/17", wait=10) as guard:
...     guard.token > 0
True
"""

from typing import TYPE_CHECKING, Any

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
from leasehold._leasehold import Guard, Guards, Leading, Owner, flush_log as _flush_log, forked as _forked
from leasehold._locks import Locks, connect
from leasehold._lost import Lost
from leasehold._request import Request

if TYPE_CHECKING:
    from leasehold._all import All
    from leasehold._election import Election, LeaderWatch
    from leasehold._once import Once, Ran, current_guard
    from leasehold._view import Diagnostic, Finding, Guarantee, Holder, HolderProcess, Leader, Leadership, View, Waiter

__all__ = [
    "All",
    "Busy",
    "Closed",
    "Diagnostic",
    "Election",
    "Finding",
    "Forked",
    "Guarantee",
    "Guard",
    "Guards",
    "Holder",
    "HolderProcess",
    "InvalidArgument",
    "Leader",
    "LeaderWatch",
    "Leadership",
    "Leading",
    "LockError",
    "LockLost",
    "Locks",
    "Lost",
    "Misconfigured",
    "Once",
    "Owner",
    "Ran",
    "Refused",
    "Request",
    "Unreachable",
    "View",
    "Waiter",
    "connect",
    "current_guard",
]

#: What is imported when it is used: most programs need none of it, and its imports cost milliseconds.
_LATER = {
    "All": "_all",
    "Diagnostic": "_view",
    "Election": "_election",
    "Finding": "_view",
    "Guarantee": "_view",
    "Holder": "_view",
    "HolderProcess": "_view",
    "Leader": "_view",
    "LeaderWatch": "_election",
    "Leadership": "_view",
    "Once": "_once",
    "Ran": "_once",
    "View": "_view",
    "Waiter": "_view",
    "current_guard": "_once",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'leasehold' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"leasehold.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def _watch_forks_and_exit() -> None:
    import atexit
    import os

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forked)
    atexit.register(_flush_log)


_watch_forks_and_exit()
