"""Runs the tests of the module, with the arguments and the output of Rust's test harness, as the project's runner of
tests expects them:

    run.py [--list --format terse] [--exact] [--test-threads N] [NAME...]

Without ``--exact`` a NAME is a part of names. A test that is skipped has failed: what is missing must be installed.
The tests of a file run in order; pytest runs one test at a time, whatever ``--test-threads`` says.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# A test that hangs ends the run after this time, with the stacks of all threads.
HANGS_AFTER_S = 300


class Harness:
    """The plugin of pytest that selects tests and reports them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.filtered = 0
        self.passed = 0
        self.failures: dict[str, str] = {}
        self.begin = time.monotonic()

    def chosen(self, name: str) -> bool:
        if not self.options.names:
            return True
        if self.options.exact:
            return name in self.options.names
        return any(part in name for part in self.options.names)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if self.chosen(name_of(item.nodeid))]
        if self.options.exact:
            for name in set(self.options.names) - {name_of(item.nodeid) for item in chosen}:
                self.failed(name, "there is no such test")
        self.filtered = len(items) - len(chosen)
        items[:] = chosen
        if self.options.list:
            for item in chosen:
                print(f"{name_of(item.nodeid)}: test")
            items.clear()
        else:
            print(f"\nrunning {len(chosen)} tests")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self.failed(report.nodeid, str(report.longrepr))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = name_of(report.nodeid)
        if report.passed:
            # A test also has a set-up and a tear-down.
            if report.when == "call" and name not in self.failures:
                self.passed += 1
                print(f"test {name} ... ok ({report.duration:.2f} s)", flush=True)
            return
        if report.when == "teardown" and name not in self.failures:
            self.passed -= 1
        sections = [f"{title}\n{text}" for title, text in report.sections]
        self.failed(name, "\n".join([str(report.longrepr), *sections]))

    def failed(self, name: str, why: str) -> None:
        self.failures[name] = why
        print(f"test {name} ... FAILED", flush=True)

    def summary(self) -> None:
        if self.failures:
            print("\nfailures:\n")
            for name, why in self.failures.items():
                print(f"---- {name} stdout ----\n{why}\n")
            # The runner reads the names from this list.
            print("\nfailures:")
            for name in self.failures:
                print(f"    {name}")
        verdict = "FAILED" if self.failures else "ok"
        took = time.monotonic() - self.begin
        print(
            f"\ntest result: {verdict}. {self.passed} passed; {len(self.failures)} failed; 0 ignored; 0 measured; "
            f"{self.filtered} filtered out; finished in {took:.2f}s\n",
            flush=True,
        )


def name_of(nodeid: str) -> str:
    """The name of a test: without spaces, and the same wherever the module is installed."""
    return nodeid.rpartition("site-packages/")[2].replace(" ", "_")


def main() -> int:
    # A shell ignores Ctrl-C for what it starts in the background, and the programs of the tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--format")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--test-threads")
    parser.add_argument("names", nargs="*")
    # The runner puts options and names in any order.
    harness = Harness(parser.parse_intermixed_args())
    settings = {
        "faulthandler_timeout": HANGS_AFTER_S,
        "faulthandler_exit_on_timeout": "true",
        "cache_dir": "/dev/null",
    }
    arguments = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    plugins = ["-p", "no:terminal", "-p", "no:cacheprovider"]
    # The tests of this folder, and the examples in the texts of the module.
    where = ["--rootdir", str(TESTS), "--doctest-modules", str(TESTS), "--pyargs", "leasehold"]
    # pytest itself would keep the files of its last three runs.
    with tempfile.TemporaryDirectory(prefix="leasehold-pytest-") as directory:
        ended = pytest.main([*arguments, *plugins, f"--basetemp={directory}/tests", *where], [harness])
    if harness.options.list:
        return 0 if not harness.failures else 1
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not harness.failures:
        harness.failed("pytest", f"it ended with {ended!r}")
    harness.summary()
    return 1 if harness.failures else 0


if __name__ == "__main__":
    sys.exit(main())
