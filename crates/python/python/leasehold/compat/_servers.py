"""The connections of these locks: to the server of a client of redis-py, or of a URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Union

from leasehold._leasehold import Guard
from leasehold._locks import Locks, connect
from leasehold._request import Request

if TYPE_CHECKING:
    from leasehold._view import View

#: The locks of each server: one connection serves all locks of a process. Its key is what connects.
_locks: dict[Any, Locks] = {}


def locks_of(redis: Any, for_tasks: bool) -> Locks:
    """The locks of the server of a client, or of a URL. ``for_tasks``: whether tasks await the lock."""
    if not for_tasks and type(redis).__module__.startswith("redis.asyncio"):
        raise TypeError("redis is a client of redis.asyncio: use leasehold.compat.AsyncRedisLock")
    url, password = (redis, None) if isinstance(redis, str) else url_of(redis)
    # The key of redis-py is the name itself.
    prefix = None if url.partition(":")[0] in ("memory", "file") else ""
    key = (url, password)
    if key not in _locks:
        _locks[key] = connect(url, prefix=prefix, password=password)
    return _locks[key]


def url_of(redis: Any) -> tuple[str, Optional[str]]:
    """The URL and the password of the server of a client of redis-py."""
    from urllib.parse import quote, urlencode

    settings = getattr(getattr(redis, "connection_pool", None), "connection_kwargs", None)
    if settings is None or not ("host" in settings or "path" in settings):
        raise TypeError(
            "redis must be a client of one server (redis.Redis or redis.asyncio.Redis), or a URL of leasehold, not "
            f"{type(redis).__name__}"
        )
    if settings.get("credential_provider") is not None:
        raise TypeError("redis has a credential_provider, which leasehold cannot use: give a URL of leasehold")
    username = settings.get("username")
    user = f"{quote(username, safe='')}@" if username else ""
    database = settings.get("db") or 0
    if "path" in settings:
        return f"redis+unix://{user}{quote(settings['path'])}?db={database}", settings.get("password")
    host = settings.get("host") or "localhost"
    address = f"{user}[{host}]" if ":" in host else f"{user}{host}"
    scheme, options = "redis", {}
    # redis-py 4 has `ssl`, later releases have a connection class of their own.
    pool_class = getattr(redis.connection_pool, "connection_class", None)
    if settings.get("ssl") or "SSL" in getattr(pool_class, "__name__", ""):
        scheme = "rediss"
        if str(settings.get("ssl_cert_reqs", "required")) not in ("required", "VerifyMode.CERT_REQUIRED", "2"):
            raise TypeError("redis does not verify the server's certificate, which leasehold always does")
        names = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
        options = {ours: settings[theirs] for ours, theirs in names.items() if settings.get(theirs)}
    query = f"?{urlencode(options)}" if options else ""
    return f"{scheme}://{address}:{settings.get('port') or 6379}/{database}{query}", settings.get("password")


def name_of(name: Union[str, bytes, memoryview]) -> str:
    """The name as text."""
    return name if isinstance(name, str) else bytes(name).decode()


def request_of(locks: Locks, name: str, timeout: Optional[float]) -> Request:
    """The request for a lock. Without a timeout the lock lives as long as its process: it is renewed."""
    _check_seconds("timeout", timeout)
    return locks.mutex(name, ttl=timeout or None, renew=not timeout)


def wait_of(blocking_timeout: Optional[float]) -> Optional[float]:
    """For how long to wait. A negative time is one try."""
    _check_seconds("blocking_timeout", blocking_timeout)
    return None if blocking_timeout is None else max(blocking_timeout, 0.0)


def _check_seconds(argument: str, value: Any) -> None:
    if value is not None and (isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__")):
        raise TypeError(f"{argument} must be seconds (int or float), not {type(value).__name__}")


def holder_with(token: Any, view: View) -> Optional[int]:
    """The number by which the hold with this token is ended; ``None`` if nobody holds the lock with it."""
    text = token.decode(errors="replace") if isinstance(token, bytes) else str(token)
    found = [holder.token for holder in view.holders if f"{holder.id}.{holder.token}" == text]
    return found[0] if found else None


def keep_until_timeout(guard: Guard, timeout: Optional[float]) -> None:
    """A lock with a timeout stays when nobody refers to it any more, as the key of redis-py does."""
    if timeout:
        guard._leave_at_end()


def token_of(guard: Guard) -> bytes:
    """What the key contains while the guard holds it."""
    return f"{guard.id}.{guard.token}".encode()
