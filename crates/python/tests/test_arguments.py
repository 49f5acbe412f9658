"""Wrong arguments: an error names the argument and says what it must be. No error shows a password."""

from __future__ import annotations

import copy
import pickle
import traceback
from datetime import timedelta
from typing import Any

import pytest

import leasehold

DURATIONS = ("ttl", "wait", "at_least", "renew_every", "max_hold")
PASSWORD = "s3cret-pa55word"


@pytest.fixture
def memory() -> leasehold.Locks:
    return leasehold.connect("memory:arguments")


@pytest.mark.parametrize("argument", DURATIONS)
@pytest.mark.parametrize("value", ["10", b"10", True, [10], object()], ids=lambda value: type(value).__name__)
def test_a_duration_of_a_wrong_type_is_a_type_error(memory: leasehold.Locks, argument: str, value: Any) -> None:
    with pytest.raises(TypeError) as refused:
        memory.mutex("x", **{argument: value})
    assert argument in str(refused.value)
    assert type(value).__name__ in str(refused.value)


@pytest.mark.parametrize("argument", DURATIONS)
@pytest.mark.parametrize("value", [-1, -0.001, float("nan"), float("inf"), timedelta(seconds=-1), 10**30])
def test_a_duration_out_of_range_is_a_value_error(memory: leasehold.Locks, argument: str, value: Any) -> None:
    with pytest.raises(ValueError) as refused:
        memory.mutex("x", **{argument: value})
    assert argument in str(refused.value)
    assert isinstance(refused.value, leasehold.InvalidArgument)
    assert len(str(refused.value)) < 100


def test_a_minimum_hold_time_that_is_a_mistake_in_the_unit_is_refused(memory: leasehold.Locks) -> None:
    with pytest.raises(leasehold.InvalidArgument, match="at_least is in seconds, and at most 366 days"):
        memory.mutex("x", at_least=60_000_000)
    memory.mutex("x", at_least=timedelta(days=366))


COUNTS = [("attempts", "mutex"), ("max_waiting", "mutex"), ("max_waiting", "election"), ("attempts", "all")]


@pytest.mark.parametrize("value", ["1", 1.5, True, (1,)], ids=lambda value: type(value).__name__)
def test_a_count_of_a_wrong_type_is_a_type_error(memory: leasehold.Locks, value: Any) -> None:
    for argument, method in COUNTS:
        names = () if method == "all" else ("x",)
        with pytest.raises(TypeError, match=f"{argument} must be int, not {type(value).__name__}"):
            getattr(memory, method)(*names, **{argument: value}).mutex("x")
    with pytest.raises(TypeError, match="max_connections must be int"):
        leasehold.connect("redis://localhost", max_connections=value)
    with pytest.raises(TypeError, match="token must be int"):
        memory.break_hold("x", value)
    for n, limit, argument in ((value, 3, "n"), (1, value, "limit")):
        with pytest.raises(TypeError, match=f"{argument} must be int, not {type(value).__name__}"):
            memory.permits("x", n, limit)
        with pytest.raises(TypeError, match=f"{argument} must be int, not {type(value).__name__}"):
            memory.all().permits("x", n, limit).acquire()


@pytest.mark.parametrize("value", [-1, 2**70])
def test_a_count_out_of_range_is_invalid(memory: leasehold.Locks, value: int) -> None:
    calls: list[Any] = [
        lambda: memory.mutex("x", attempts=value),
        lambda: memory.mutex("x", max_waiting=value),
        lambda: memory.permits("x", value, 3),
        lambda: memory.permits("x", 1, value),
        lambda: memory.break_hold("x", value),
        lambda: leasehold.connect("redis://localhost", max_connections=value),
    ]
    for call in calls:
        with pytest.raises(leasehold.InvalidArgument, match="is out of range"):
            call()


def test_connect_takes_no_zero_and_names_its_arguments() -> None:
    for argument in ("max_connections", "max_waiting"):
        with pytest.raises(leasehold.InvalidArgument, match=f"{argument} is out of range: 0"):
            options: Any = {argument: 0}
            leasehold.connect("redis://localhost", **options)
    with pytest.raises(leasehold.Misconfigured, match="the argument schema is given") as refused:
        leasehold.connect("redis://localhost", schema="x")
    assert "::" not in str(refused.value)


def test_a_flag_is_true_or_false(memory: leasehold.Locks) -> None:
    for value in ("no", 0):
        with pytest.raises(TypeError, match=f"renew must be True or False, not {type(value).__name__}"):
            memory.mutex("x", renew=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("wait", [0, 0.0, 1, 1.5, timedelta(0), timedelta(milliseconds=1500), None])
def test_durations_are_numbers_or_timedeltas(memory: leasehold.Locks, wait: Any) -> None:
    memory.mutex("x", wait=wait).acquire().release()
    memory.mutex("x").acquire(wait=wait).release()


@pytest.mark.parametrize("name", [b"x", 17, None, ["x"]], ids=lambda name: type(name).__name__)
def test_a_name_is_a_str(memory: leasehold.Locks, name: Any) -> None:
    for request in (memory.mutex, memory.read, memory.write):
        with pytest.raises(TypeError, match="name must be str, not " + type(name).__name__):
            request(name)
    with pytest.raises(TypeError, match="name must be str"):
        memory.permits(name, 1, 2)


def test_a_name_has_no_surrogates(memory: leasehold.Locks) -> None:
    with pytest.raises(ValueError, match="name has surrogates"):
        memory.mutex("x\ud800")


def test_other_arguments_of_wrong_types_are_type_errors(memory: leasehold.Locks) -> None:
    with pytest.raises(TypeError, match="owner must be a str or a leasehold.Owner"):
        memory.mutex("x", owner=17)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="url must be str"):
        leasehold.connect(b"memory:")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="prefix must be str"):
        leasehold.connect("redis://localhost", prefix=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="label must be str"):
        leasehold.Owner(b"x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="surprise"):
        memory.read("x", surprise=1)


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "gopher://host", "redis://", "redis://host:notaport", "memory:x?surprise=1"],
)
def test_a_wrong_url_is_misconfigured_at_once(url: str) -> None:
    with pytest.raises(leasehold.Misconfigured) as refused:
        leasehold.connect(url)
    assert "\n" not in str(refused.value)


def test_a_wrong_option_is_refused_with_the_choices() -> None:
    with pytest.raises(leasehold.InvalidArgument, match="'fail' or 'wait', not \"maybe\""):
        leasehold.connect("memory:", when_unreachable="maybe")


def test_permits_are_counted_from_one(memory: leasehold.Locks) -> None:
    for n, limit in ((0, 3), (4, 3), (1, 0)):
        with pytest.raises(leasehold.InvalidArgument, match="permits|limit"):
            memory.permits("x", n, limit)
        with pytest.raises(leasehold.InvalidArgument, match="permits|limit"):
            memory.all().mutex("a").permits("x", n, limit)


@pytest.mark.parametrize("name", ["", "x" * 513, "a\nb"], ids=["empty", "long", "control"])
def test_a_wrong_name_is_found_when_the_request_is_made(memory: leasehold.Locks, name: str) -> None:
    for make in (memory.mutex, memory.read, memory.write, memory.election, memory.once, memory.all().mutex):
        with pytest.raises(leasehold.InvalidArgument):
            make(name)


@pytest.mark.parametrize(
    ("option", "value"),
    [("ttl", 0), ("ttl", 10**6), ("renew_every", 0), ("renew_every", 20), ("max_hold", 0), ("max_waiting", 0)],
)
def test_a_wrong_option_is_found_when_the_request_is_made(memory: leasehold.Locks, option: str, value: int) -> None:
    options: Any = {option: value}

    def decorated() -> None:
        @memory.mutex("x", **options)
        def work() -> None:
            pass

    requests: list[Any] = [
        decorated,
        lambda: memory.read("x", **options),
        lambda: memory.permits("x", 1, 3, **options),
        lambda: memory.all(**options).mutex("x"),
        lambda: memory.election("x", **options),
    ]
    for request in requests:
        with pytest.raises(leasehold.InvalidArgument, match=f"{option} .*(out of range|is zero)"):
            request()


def test_attempts_are_at_least_one(memory: leasehold.Locks) -> None:
    with pytest.raises(leasehold.InvalidArgument, match="attempts is zero"):
        memory.mutex("x", attempts=0)


def test_a_request_shows_its_name(memory: leasehold.Locks) -> None:
    assert repr(memory.mutex("order/17")) == '<leasehold.Request mutex "order/17" on memory>'
    assert repr(memory.permits("printer", 1, 4)) == '<leasehold.Request permits 1 of 4 "printer" on memory>'


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("unix:///run/redis.sock", "redis\\+unix://"),
        (f"postgresql+psycopg2://user:{PASSWORD}@host/database", "postgres://"),
        (f"mysql+pymysql://user:{PASSWORD}@host/database", "mysql://"),
        ("sqlite+pysqlite:///a.db", "sqlite://"),
    ],
)
def test_a_url_of_another_library_is_refused_with_ours(url: str, written: str) -> None:
    with pytest.raises(leasehold.Misconfigured, match=f"that of another library: write {written}") as refused:
        leasehold.connect(url)
    assert PASSWORD not in str(refused.value)


def test_a_database_that_redis_does_not_have_is_misconfigured(redis_url: str) -> None:
    locks = leasehold.connect(redis_url.replace("?", "/99?", 1))
    for call in (locks.ping, locks.mutex("x", wait=0).acquire):
        with pytest.raises(leasehold.Misconfigured, match="does not have the database") as refused:
            call()
        assert refused.value.kind == "misconfigured"


def test_invalid_arguments_are_value_errors_too(memory: leasehold.Locks) -> None:
    assert issubclass(leasehold.InvalidArgument, ValueError)
    assert issubclass(leasehold.Busy, leasehold.LockError)
    with pytest.raises(ValueError):
        memory.mutex("")


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{PASSWORD}@127.0.0.1:1",
        f"etcd://user:{PASSWORD}@127.0.0.1:1",
        f"postgres://user:{PASSWORD}@127.0.0.1:1/database",
        f"mysql://user:{PASSWORD}@127.0.0.1:1/database",
        f"redis://user:{PASSWORD}@127.0.0.1:notaport",
        f"gopher://user:{PASSWORD}@127.0.0.1",
    ],
    ids=lambda url: str(url).partition(":")[0] + ("-wrong" if "notaport" in str(url) else ""),
)
def test_no_error_and_no_repr_shows_a_password(url: str) -> None:
    texts = []
    try:
        locks = leasehold.connect(url, connect_timeout=0.05, when_unreachable="fail")
        texts += [repr(locks), str(locks), repr(locks.mutex("x")), str(vars(locks))]
        locks.mutex("x", wait=0).acquire()
    except leasehold.LockError as error:
        texts += [str(error), repr(error), "".join(traceback.format_exception(type(error), error, None))]
        texts += [str(vars(error)), repr(pickle.dumps(error))]
        texts += [str(line) for line in traceback.extract_tb(error.__traceback__)]
    else:
        pytest.fail("nothing listens there")
    for text in texts:
        assert PASSWORD not in text


def test_an_unreachable_engine_is_unreachable_and_named() -> None:
    locks = leasehold.connect("redis://127.0.0.1:1", connect_timeout=0.05, when_unreachable="fail")
    with pytest.raises(leasehold.Unreachable) as refused:
        locks.mutex("x", wait=0).acquire()
    assert (refused.value.engine, refused.value.kind) == ("redis", "unreachable")
    with pytest.raises(leasehold.Unreachable):
        locks.ping()


def test_errors_survive_pickle_and_copy(memory: leasehold.Locks) -> None:
    with memory.mutex("x"):
        with pytest.raises(leasehold.Busy) as busy:
            memory.mutex("x").acquire(wait=0)
    for again in (pickle.loads(pickle.dumps(busy.value)), copy.copy(busy.value)):
        assert type(again) is leasehold.Busy
        assert (str(again), again.name, again.engine) == (str(busy.value), "x", "memory")
        assert again.kind == busy.value.kind
