"""What operators see: names with holders and waiters, leaders, and what an engine promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional


@dataclass(frozen=True)
class HolderProcess:
    """The process of a holder on this machine.

    >>> import leasehold
    >>> leasehold.HolderProcess(17, "T").halted
    True
    """

    #: Its pid, as this process sees it.
    pid: int
    #: The letter of its state in ``/proc/PID/stat``: ``"S"`` sleeping, ``"T"`` stopped by a signal. ``None``: unknown.
    state: Optional[str]

    @property
    def halted(self) -> bool:
        """Whether it does not run until somebody else lets it: it was stopped by a signal or a debugger, or is in a
        wait that no signal interrupts."""
        return self.state in ("T", "t", "D")


@dataclass(frozen=True)
class Holder:
    """A holder as seen from outside. Times are in seconds; ``None``: the engine does not tell.

    >>> import leasehold
    >>> locks = leasehold.connect("memory:", owner="shop")
    >>> with locks.mutex("order/17"):
    ...     locks.show("order/17").holders[0].owner
    'shop'
    """

    #: The claim id; another identifier of a holder of another program.
    id: str
    #: The label of the holder.
    owner: str
    #: The first token of the grant; ``None`` for a holder of another program.
    token: Optional[int]
    #: How long it has held the name.
    held: Optional[float]
    #: The time until it lapses, unless renewed; ``None``: it does not lapse by itself.
    remaining: Optional[float]
    #: Whether the hold ends with a session of the holder.
    of_session: bool
    #: Whether a program other than leasehold holds it.
    foreign: bool
    #: ``"exclusive"``, ``"shared"`` or ``"permit"``.
    mode: Optional[str]
    #: Whether an operator broke the hold without force. The name is free when the holder releases it, and at the latest
    #: when ``remaining`` has passed: a broken hold is not renewed.
    broken: bool
    #: The time to which each renewal extends the lease, where the engine stores that time.
    ttl: Optional[float]
    #: How long ago, at least, the lease was extended last. Most engines store only the end of a lease: then it is
    #: ``None``.
    since_renewal: Optional[float]
    #: By how much, at least, a renewal is overdue: the holder hangs, is stopped or is cut off, or nobody renews the
    #: hold. ``None``: this is not known, or no renewal is overdue.
    overdue: Optional[float]
    #: The process that holds, where the engine tells it and the process can be seen from here: on files.
    process: Optional[HolderProcess]


@dataclass(frozen=True)
class Waiter:
    """A waiter as seen from outside, in the order of the queue.

    >>> import leasehold
    >>> leasehold.connect("memory:").show("order/17").waiters
    ()
    """

    #: The claim id; another identifier of a waiter of another program.
    id: str
    #: The label of the waiter.
    owner: str
    #: Seconds for which it has waited.
    waiting: Optional[float]
    #: The mode for which it waits.
    mode: Optional[str]


@dataclass(frozen=True)
class View:
    """A name as seen from outside. It is of the past when it arrives: for people, not to decide whether to acquire.

    >>> import leasehold
    >>> view = leasehold.connect("memory:").show("order/17")
    >>> view.mode is None, view.holders
    (True, ())
    """

    #: The name.
    name: str
    #: How other programs find the name: the lock file, the Redis key.
    key: str
    #: ``"exclusive"``, ``"shared"`` or ``"permit"``; ``None``: the name is free.
    mode: Optional[str]
    #: The holders.
    holders: tuple[Holder, ...]
    #: The waiters, in the order of the queue.
    waiters: tuple[Waiter, ...]
    #: The lineage of the holders' tokens, if it was read.
    lineage: Optional[str]
    #: In a list: why the holders could not be read.
    problem: Optional[str]
    #: Why the name is taken and what to do, where the holders alone do not show it.
    note: Optional[str]


@dataclass(frozen=True)
class Finding:
    """A setting or property of the engine that lowers its guarantee.

    >>> import leasehold
    >>> leasehold.connect("memory:").guarantee().findings
    ()
    """

    #: Its name in the documentation of the engine.
    what: str
    #: Its value.
    found: str
    #: The value that would not lower the guarantee.
    wanted: str
    #: What can happen with the value found.
    risk: str


@dataclass(frozen=True)
class Guarantee:
    """What the engine promises, as its server is configured now.

    >>> import leasehold
    >>> leasehold.connect("memory:").guarantee().level
    'lease-bounded'
    """

    #: ``"best effort"``, ``"lease-bounded"`` or ``"exact"``.
    level: str
    #: Why the level is not higher.
    findings: tuple[Finding, ...]
    #: Further facts, one sentence each.
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Diagnostic:
    """Something that an operator should know about the servers.

    >>> import leasehold
    >>> leasehold.connect("memory:").diagnose()[0].severity
    'good'
    """

    #: A word for programs.
    id: str
    #: ``"good"``, ``"warning"``, ``"broken"`` or ``"unknown"``.
    severity: str
    #: The server, where there are several.
    server: Optional[str]
    #: What was found.
    found: str
    #: What to do.
    advice: str


@dataclass(frozen=True)
class Leader:
    """A leader: what it published, and its term.

    >>> import leasehold
    >>> locks = leasehold.connect("memory:")
    >>> with locks.election("scheduler", value="10.0.0.7:8080"):
    ...     locks.election("scheduler").leader().value
    '10.0.0.7:8080'
    """

    #: What the leader published; ``None``: nothing.
    value: Optional[str]
    #: The token of its hold: later leaders of one lineage have larger terms.
    term: int
    #: Terms of two lineages cannot be compared.
    lineage: str


@dataclass(frozen=True)
class Leadership:
    """Who leads, as far as an observer knows.

    >>> import leasehold
    >>> watch = leasehold.connect("memory:").election("scheduler").observe()
    >>> next(watch)
    Leadership(state='vacant', leader=None)
    """

    #: ``"held"``; ``"vacant"``: no leader is known; ``"unsure"``: the engine could not be read for the lease time.
    state: str
    #: The leader, if the state is ``"held"``.
    leader: Optional[Leader]


def view_of(
    name: str,
    key: str,
    mode: Optional[str],
    holders: list[tuple[tuple[Any, ...], tuple[Any, ...]]],
    waiters: list[tuple[Any, ...]],
    lineage: Optional[str],
    problem: Optional[str],
    note: Optional[str],
) -> View:
    """The view of a name, from the parts that the library gives."""
    holders_seen = tuple(_holder_of(*parts) for parts in holders)
    waiters_seen = tuple(Waiter(*waiter) for waiter in waiters)
    return View(name, key, mode, holders_seen, waiters_seen, lineage, problem, note)


def _holder_of(told: tuple[Any, ...], lease: tuple[Any, ...]) -> Holder:
    *times, process = lease
    parts = [*told, *times, None if process is None else HolderProcess(*process)]
    return Holder(*parts)


def guarantee_of(level: str, findings: list[tuple[str, str, str, str]], notes: list[str]) -> Guarantee:
    """The guarantee, from the parts that the library gives."""
    return Guarantee(level, tuple(Finding(*finding) for finding in findings), tuple(notes))


def diagnostics_of(rows: list[tuple[str, str, Optional[str], str, str]]) -> list[Diagnostic]:
    """The diagnostics, from the parts that the library gives."""
    return [Diagnostic(*row) for row in rows]
