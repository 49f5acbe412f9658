"""The native part: the Rust crate as Python classes."""

from collections.abc import Callable, Generator, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, List as _List, Literal, Optional, TypeVar, Union

from leasehold._lost import Lost
from leasehold._view import Diagnostic, Guarantee, Leader, Leadership, View

_Seconds = Union[float, timedelta]
_Result = TypeVar("_Result", covariant=True)
_Kind = Union[str, tuple[int, int]]

class Operation(Generic[_Result]):
    """One call of the library. Dropping or closing it cancels the call."""

    def wait(self) -> _Result: ...
    def start(self, callback: Callable[[Any], None]) -> None: ...
    def close(self) -> None: ...
    def __await__(self) -> Generator[Any, Any, _Result]: ...
    def _advance(self, queue: WakeQueue, resumption: object) -> Optional[tuple[_Result]]: ...

class WakeQueue:
    """The wake-ups of one event loop."""

    def fileno(self) -> int: ...
    def drain(self) -> None: ...

class LossCalls:
    """What the thread for callbacks has to call."""

    def next(self) -> Optional[tuple[Optional[Callable[[str], object]], str]]: ...

class Owner:
    """An owner of holds. A request whose owner holds the name already is granted at once, and shares the hold."""

    def __init__(self, label: str) -> None: ...
    @property
    def label(self) -> str: ...

class Locks:
    """The locks of one engine."""

    def __init__(
        self,
        url: str,
        *,
        owner: Optional[str] = None,
        prefix: Optional[str] = None,
        schema: Optional[str] = None,
        password: Optional[str] = None,
        connect_timeout: Optional[_Seconds] = None,
        max_connections: Optional[int] = None,
        max_waiting: Optional[int] = None,
        when_unreachable: Optional[str] = None,
    ) -> None: ...
    @property
    def engine(self) -> str:
        """The engine: ``"redis"``, for example."""

    def _ping(self) -> Operation[None]: ...
    def _close(self, limit: _Seconds) -> Operation[int]: ...
    def _settings(self) -> tuple[str, dict[str, Any]]: ...

class Guard:
    """A hold of a name. Dropping it releases, in the background."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def token(self) -> int:
        """Grows with each grant: the protected resource refuses writes with a smaller one than it has seen."""

    @property
    def lineage(self) -> str:
        """Tokens of two lineages cannot be compared."""

    @property
    def engine(self) -> str:
        """The engine: ``"redis"``, for example."""

    @property
    def mode(self) -> str:
        """``"exclusive"``, ``"shared"`` or ``"permit"``."""

    @property
    def id(self) -> str:
        """The claim id, by which ``show`` finds the hold."""

    @property
    def previous(self) -> str:
        """How the hold before ended: ``"clean"``, ``"abandoned"``, ``"lapsed"``, ``"broken"`` or ``"unknown"``."""

    @property
    def released(self) -> bool:
        """Whether this guard was released."""

    @property
    def remaining(self) -> Optional[float]:
        """Seconds for which the hold is certainly valid, 0 after its end; ``None``: without a limit."""

    @property
    def trouble(self) -> Optional[str]:
        """What was wrong at the last renewal."""

    @property
    def lost(self) -> Lost:
        """The loss of the hold, as an event and an awaitable."""

    def check(self) -> bool:
        """Whether the hold is certainly valid now. Asks no server."""

    def release(self) -> None:
        """Releases the hold, and waits until the engine has confirmed it."""

    def release_async(self) -> Operation[None]: ...
    def confirm(self) -> None:
        """Asks the engine whether the hold is valid, and renews it."""

    def confirm_async(self) -> Operation[None]: ...
    def extend(self, time: _Seconds) -> Optional[float]:
        """Makes the hold last for at least ``time`` from now on; the seconds that it is valid."""

    def extend_async(self, time: _Seconds) -> Operation[Optional[float]]: ...
    def on_lost(self, callback: Callable[[str], object]) -> None:
        """Calls ``callback`` with the reason when the hold is lost, on a thread for callbacks."""

    def _lost(self) -> Operation[str]: ...
    @property
    def _loss(self) -> Optional[str]: ...
    def _tell_loss(self, reason: str) -> None: ...
    def _set_on_loss(self, callback: Callable[[str], object]) -> None: ...
    def _leave_at_end(self) -> None: ...
    def __enter__(self) -> Guard: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Literal[False]: ...

class Guards:
    """The holds of several names, by name, in the byte order of the names."""

    @property
    def name(self) -> str:
        """The names, as one text."""

    @property
    def engine(self) -> str:
        """The engine: ``"redis"``, for example."""

    @property
    def token(self) -> int:
        """The token of the first name: each guard has its own."""

    @property
    def released(self) -> bool:
        """Whether all holds were released."""

    @property
    def remaining(self) -> Optional[float]:
        """Seconds for which all holds are certainly valid; ``None``: without a limit."""

    def check(self) -> bool:
        """Whether every hold is certainly valid now. Asks no server."""

    def release(self) -> None:
        """Releases all holds, and waits until the engine has confirmed it."""

    def release_async(self) -> Operation[None]: ...
    def keys(self) -> _List[str]: ...
    def values(self) -> _List[Guard]: ...
    def items(self) -> _List[tuple[str, Guard]]: ...
    def __getitem__(self, name: str) -> Guard: ...
    def __contains__(self, name: object) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def _lost(self) -> Operation[str]: ...
    def __enter__(self) -> Guards: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Literal[False]: ...

class Request:
    """A request for a name."""

    def __init__(
        self,
        locks: Locks,
        kind: _Kind,
        name: str,
        *,
        ttl: Optional[_Seconds] = None,
        wait: Optional[_Seconds] = None,
        at_least: Optional[_Seconds] = None,
        owner: Optional[Union[str, Owner]] = None,
        renew: bool = True,
        renew_every: Optional[_Seconds] = None,
        max_hold: Optional[_Seconds] = None,
        attempts: Optional[int] = None,
        max_waiting: Optional[int] = None,
    ) -> None: ...
    @property
    def name(self) -> str:
        """The name."""

    def acquire(self, wait: Optional[_Seconds] = None) -> Guard:
        """Acquires: blocks this thread. ``wait`` replaces the wait of the request."""

    def _acquire(self, wait: Optional[_Seconds] = None) -> Operation[Guard]: ...
    def _try_acquire(self) -> Operation[Guard]: ...
    def __enter__(self) -> Guard: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Literal[False]: ...
    def __aenter__(self) -> Operation[Guard]: ...
    def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Operation[None]: ...

class All:
    """A request for several names."""

    def __init__(self, locks: Locks, entries: tuple[tuple[Any, str], ...], **options: Any) -> None: ...
    def acquire(self, wait: Optional[_Seconds] = None) -> Guards:
        """Acquires all names: blocks this thread. ``wait`` replaces the wait of the request."""

    def _acquire(self, wait: Optional[_Seconds] = None) -> Operation[Guards]: ...
    def __enter__(self) -> Guards: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Literal[False]: ...
    def __aenter__(self) -> Operation[Guards]: ...
    def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Operation[None]: ...

class Election:
    """A leader election."""

    def __init__(self, locks: Locks, name: str, **options: Any) -> None: ...
    @property
    def name(self) -> str:
        """The name."""

    def campaign(self, wait: Optional[_Seconds] = None) -> Leading:
        """Waits until this candidate leads: blocks this thread. ``wait`` replaces the wait of the election."""

    def _campaign(self, wait: Optional[_Seconds] = None) -> Operation[Leading]: ...
    def _leader(self) -> Operation[Optional[Leader]]: ...
    def _observe(self) -> Watch: ...
    def __enter__(self) -> Leading: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Literal[False]: ...
    def __aenter__(self) -> Operation[Leading]: ...
    def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Operation[None]: ...

class Leading:
    """The lead: one term. Dropping it resigns, in the background."""

    @property
    def name(self) -> str:
        """The name of the election."""

    @property
    def engine(self) -> str:
        """The engine: ``"redis"``, for example."""

    @property
    def token(self) -> int:
        """The term, under its name as a token."""

    @property
    def term(self) -> int:
        """The token of the hold: send it with every order, and let receivers refuse a smaller one."""

    @property
    def lineage(self) -> str:
        """Terms of two lineages cannot be compared."""

    @property
    def released(self) -> bool:
        """Whether it resigned."""

    @property
    def remaining(self) -> Optional[float]:
        """Seconds for which the lead is certainly valid; ``None``: without a limit."""

    @property
    def lost(self) -> Lost:
        """The loss of the lead, as an event and an awaitable."""

    def check(self) -> bool:
        """Whether this candidate certainly leads now. Asks no server."""

    def resign(self) -> None:
        """Ends the term, and waits until the engine has confirmed it."""

    def resign_async(self) -> Operation[None]: ...
    def release_async(self) -> Operation[None]: ...
    def proclaim(self, value: str) -> None:
        """Publishes another value in this term."""

    def proclaim_async(self, value: str) -> Operation[None]: ...
    def on_lost(self, callback: Callable[[str], object]) -> None:
        """Calls ``callback`` with the reason when the lead is lost, on a thread for callbacks."""

    def _lost(self) -> Operation[str]: ...
    @property
    def _loss(self) -> Optional[str]: ...
    def __enter__(self) -> Leading: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Literal[False]: ...

class Watch:
    """Follows who leads."""

    def _changed(self) -> Operation[Leadership]: ...

class Once:
    """Work that is done one time for a key."""

    def __init__(
        self,
        locks: Locks,
        key: str,
        *,
        ttl: Optional[_Seconds] = None,
        keep: Optional[_Seconds] = None,
        wait: Optional[_Seconds] = None,
        digest: Optional[bytes] = None,
        owner: Optional[str] = None,
        renew_every: Optional[_Seconds] = None,
        max_hold: Optional[_Seconds] = None,
        max_waiting: Optional[int] = None,
    ) -> None: ...
    @property
    def key(self) -> str:
        """The key."""

    def _begin(self) -> Operation[Union[bytes, Guard]]: ...
    def _store(self, guard: Guard, result: bytes) -> Operation[None]: ...
    def _give_up(self, guard: Guard) -> Operation[None]: ...
    def _stored(self) -> Operation[Optional[bytes]]: ...

def forked() -> None: ...
def flush_log() -> None: ...
def record_metrics() -> bool: ...
def recorded_metrics() -> _List[tuple[str, str, _List[tuple[str, str]], Any]]: ...
def show(locks: Locks, name: str) -> Operation[View]: ...
def list(locks: Locks, prefix: str) -> Operation[_List[View]]: ...
def holder(locks: Locks, name: str) -> Operation[Optional[tuple[str, Optional[float]]]]: ...
def break_hold(locks: Locks, name: str, token: int, force: bool) -> Operation[bool]: ...
def guarantee(locks: Locks) -> Operation[Guarantee]: ...
def diagnose(locks: Locks) -> Operation[_List[Diagnostic]]: ...
