"""The examples, the pages and the docstrings: all of their programs run."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any, Iterator

import pytest

import leasehold

EXAMPLES = Path(__file__).parent.parent / "examples"
PAGES = ("docs/python.md", "crates/python/README.md", "README.md")
ROOT = Path(__file__).parents[3]


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_an_example_has_at_most_30_lines_of_code(file: Path) -> None:
    lines = {node.lineno for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.stmt)}
    assert len(lines) <= 30 + 1, "the docstring counts one"


def test_of_two_beats_one_sends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BEAT_SCHEDULE", str(tmp_path / "schedule"))
    beat = example("celery_beat")
    term = beat.main(run_for=0.5)
    assert beat.main(run_for=0.1) > term


def test_a_beat_that_was_paused_beyond_its_lease_sends_nothing() -> None:
    beat = example("celery_beat")
    locks = leasehold.connect("memory:paused-beat")
    sent: list[str] = []
    leading = locks.election("celery-beat").campaign()
    scheduler = beat.LeadersScheduler(leading, beat.app, lazy=True)
    scheduler.send_task = lambda *args, **kwargs: sent.append(args[0])
    entry = scheduler.Entry(name="report", task="shop.report", schedule=60.0, app=beat.app)
    scheduler.apply_async(entry, producer=None, advance=False)
    assert sent == ["shop.report"]
    # As after a pause: the thread for callbacks has not run yet.
    locks.break_hold("celery-beat", leading.term, force=True)
    assert leading.lost.wait(60)
    scheduler.apply_async(entry, producer=None, advance=False)
    assert sent == ["shop.report"]


def test_an_order_that_is_sent_twice_is_charged_once() -> None:
    orders = example("fastapi_order")
    first, second, other = orders.main()
    assert first == second == {"receipt": 1, "item": "book"}
    assert "another payload" in other["detail"]
    assert orders.charged == ["book"]


def test_a_management_command_runs_one_time_at_once() -> None:
    from django.core.management.base import CommandError

    command = example("django_command")
    assert command.main().startswith("sent, with token ")
    with command.locks.mutex("send-invoices"):
        with pytest.raises(CommandError, match="it runs already, started by "):
            command.main()


def test_one_of_several_schedulers_runs_a_job() -> None:
    assert len(example("apscheduler_job").main()) == 1


def test_a_job_ends_when_its_lock_is_lost() -> None:
    steps = example("asyncio_job").main()
    assert steps[0].startswith("step with token ")
    assert steps[-2:] == ["cleaned up", "stopped: broken"]


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run(page: str) -> None:
    programs = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert programs
    for source in programs:
        program = re.sub(r'"(redis|postgres|etcd|file|memory):[^"]*"', '"memory:page"', source)
        exec(compile(program, page, "exec"), {"__name__": "page"})


def test_the_examples_of_the_native_classes_run() -> None:
    # pytest finds those of the modules in Python.
    results = doctest.testmod(importlib.import_module("leasehold._leasehold"))
    assert results.failed == 0 and results.attempted > 50


@pytest.mark.parametrize("name", sorted(leasehold.__all__))
def test_each_public_name_has_a_docstring_and_most_an_example(name: str) -> None:
    for member, value in documented(name, getattr(leasehold, name)):
        text = inspect.getdoc(value) or ""
        assert text, f"{member} has no docstring"
        # The members of a class without one are values, whose class has the example; exceptions share that of theirs.
        if callable(value) and not (inspect.isclass(value) and issubclass(value, Exception)):
            assert ">>>" in text, f"{member} has no example"


def documented(name: str, public: Any) -> Iterator[tuple[str, Any]]:
    """The object and its public members."""
    yield name, public
    if inspect.isclass(public):
        for member, value in vars(public).items():
            if not member.startswith("_") and (callable(value) or inspect.isdatadescriptor(value)):
                yield f"{name}.{member}", value
