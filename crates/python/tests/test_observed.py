"""Logs and metrics."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import leasehold
import leasehold.metrics


def test_a_loss_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    from leasehold._leasehold import flush_log

    locks = leasehold.connect("memory:logged")
    guard = locks.mutex("order/17").acquire()
    with caplog.at_level(logging.WARNING, "leasehold"):
        locks.break_hold("order/17", guard.token, force=True)
        assert guard.lost.wait(60)
        while not caplog.records:
            pass
    [record] = caplog.records
    assert record.name == "leasehold" and record.levelno == logging.WARNING
    assert 'lost engine="memory" name=order/17' in record.getMessage()
    assert flush_log is not None


def test_the_last_records_are_logged_before_the_interpreter_ends() -> None:
    program = """
        import leasehold, logging
        logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
        locks = leasehold.connect("memory:")
        guard = locks.mutex("order/17").acquire()
        locks.break_hold("order/17", guard.token, force=True)
        guard.lost.wait()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert 'leasehold WARNING lost engine="memory" name=order/17' in done.stderr


def test_metrics_count_waits_holds_and_losses(redis_url: str) -> None:
    # In a process of its own: the series are those of all locks of a process.
    program = f"import test_observed; test_observed.check_metrics({redis_url!r})"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, cwd=Path(__file__).parent)


def check_metrics(redis_url: str) -> None:
    registry = CollectorRegistry()
    before = leasehold.connect(redis_url)
    with pytest.warns(RuntimeWarning, match=r"call install\(\) before connect\(\)"):
        leasehold.metrics.install(registry)
    locks = leasehold.connect(redis_url)

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(name, {"engine": "redis", **labels}) or 0.0

    exclusive = {"mode": "exclusive"}
    granted = {"mode": "exclusive", "outcome": "granted", "contended": "false"}
    with before.mutex("a", wait=10):
        assert value("leasehold_holder_count", **exclusive) == 0, "locks of before are not recorded"
        with pytest.raises(leasehold.Busy):
            locks.mutex("a").acquire(wait=0)
    with locks.mutex("a", wait=10):
        assert value("leasehold_holder_count", **exclusive) == 1
        assert value("leasehold_acquire_duration_seconds_count", **granted) == 1
        assert value("leasehold_acquire_duration_seconds_bucket", le="+Inf", **granted) == 1
        assert value("leasehold_acquire_duration_seconds_sum", **granted) > 0
    assert value("leasehold_holder_count", **exclusive) == 0
    assert value("leasehold_waiter_count", **exclusive) == 0
    assert value("leasehold_hold_duration_seconds_count", end="released", **exclusive) == 1
    refused = {"mode": "exclusive", "outcome": "taken", "contended": "true"}
    assert value("leasehold_acquire_duration_seconds_count", **refused) == 1
    guard = locks.mutex("b").acquire(wait=10)
    locks.break_hold("b", guard.token, force=True)
    with pytest.raises(leasehold.LockLost):
        guard.confirm()
    assert value("leasehold_losses_total", cause="broken", **exclusive) == 1
    assert value("leasehold_connects_total") >= 1
    counted = value("leasehold_request_duration_seconds_count", verb="claim", error_type="none")
    assert counted >= 3
    # The series outlive their locks: a counter never goes back.
    del guard, locks
    assert value("leasehold_request_duration_seconds_count", verb="claim", error_type="none") >= counted
