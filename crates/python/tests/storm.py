"""A storm: programs that share some names and are killed, paused, terminated and started again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional

from journal import History, Journal, Verdict, judge
from servers import wait_until

#: The names that the programs of a storm share.
NAMES = ("a", "b", "c")
#: As in storm_worker.py.
LEASE_S = 5.0
#: The programs that end by themselves after SIGTERM, and hold nothing then.
GRACEFUL = ("loop", "threads", "tasks", "prefork", "spawn", "compat")
#: The pauses of a program: its lease survives the first two.
PAUSES_S = (0.05, 0.5, 1.5 * LEASE_S)
#: The time between two events of a storm, on average.
BETWEEN_S = 0.3


@dataclass
class Program:
    """A running program, with the processes that it has started."""

    kind: str
    number: int
    process: subprocess.Popen[bytes]
    #: When the paused processes continue.
    paused: dict[int, float] = field(default_factory=dict)

    def prefix(self, pid: int) -> str:
        """The begin of the names that this process has in journals."""
        own = "" if self.kind == "rust" else f"{pid}-"
        return f"{self.kind}-{self.number}-{own}"

    def pids(self) -> list[int]:
        """All its processes."""
        return [pid for pid in running_processes() if group_of(pid) == self.process.pid]


class Storm:
    """The programs, and what happens to them. ``address`` is a URL of the engine for every program."""

    def __init__(self, address: str, directory: Path, seed: int, rust: str) -> None:
        self.address = address
        self.directory = directory
        self.rust = rust
        self.chance = random.Random(seed)
        self.journals = [Journal(directory, name) for name in NAMES]
        self.programs: list[Program] = []
        self.groups: list[int] = []
        self.counts: Counter[str] = Counter()

    def start(self, kind: str) -> None:
        number = len(self.groups)
        command = self._command(kind, number)
        # Killed with this process, also while it is paused.
        command = ["setpriv", "--pdeathsig", "KILL", *command]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        self.programs.append(Program(kind, number, process))
        self.groups.append(process.pid)

    def _command(self, kind: str, number: int) -> list[str]:
        if kind == "rust":
            name = self.chance.choice(NAMES)
            lease = str(int(LEASE_S * 1000))
            return [self.rust, "turns", self.address, name, lease, str(self.directory / name), f"rust-{number}-"]
        script = str(Path(__file__).with_name("storm_worker.py"))
        seed = str(self.chance.randrange(10**6))
        return [sys.executable, script, kind, str(number), self.address, str(self.directory), seed, *NAMES]

    def rage(self, seconds: float) -> None:
        """Events at random, for some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.chance.uniform(0, 2 * BETWEEN_S))
            for program in self.programs:
                status = program.process.poll()
                assert status is None, f"{program.kind} has ended with {status}"
            events = (self.kill_a_holder, self.kill, self.terminate, self.pause_a_holder, self.pause)
            event = self.chance.choice(events)
            event()
            self.resume(time.monotonic())
        self.resume()

    def kill_a_holder(self) -> None:
        found = self._holder()
        if found is not None:
            self._kill(found[0], [found[1]])

    def _holder(self) -> Optional[tuple[Program, int]]:
        """A program that is in a section now, and its process. Where few are at a time, the first that is seen."""
        history = self.chance.choice(self.journals).history
        self._wait(lambda: bool(history().open()), "a section begins")
        for section in history().open():
            for program in self.programs:
                if section.who.startswith(f"{program.kind}-{program.number}-"):
                    # Sections are short: no time to look for all processes of the program.
                    is_rust = program.kind == "rust"
                    pid = program.process.pid if is_rust else int(section.who.rsplit("-", 2)[1])
                    return (program, pid) if group_of(pid) == program.process.pid else None
        return None

    def kill(self) -> None:
        """Kills a program without its children, a child, or all processes of a program."""
        program = self.chance.choice(self.programs)
        pids = program.pids()
        self._kill(program, self.chance.choice(([program.process.pid], [self.chance.choice(pids)], pids)))

    def _kill(self, program: Program, pids: list[int]) -> None:
        stop(pids)
        for pid in pids:
            held = self._tell("killed", program.prefix(pid))
            self.counts["killed in a section" if held else "killed elsewhere"] += 1
        for pid in pids:
            program.paused.pop(pid, None)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if program.process.pid in pids:
            program.process.wait()
            self._replace(program)

    def _tell(self, event: str, prefix: str) -> bool:
        """Records what happens to a stopped process. Whether it is in a section."""
        is_inside = False
        for journal in self.journals:
            is_inside = bool(journal.history().open(prefix)) or is_inside
            journal.record(event, prefix)
        return is_inside

    def terminate(self) -> None:
        """Sends SIGTERM to a program, which must end by itself."""
        program = self._one(lambda program: program.kind in GRACEFUL and not program.paused)
        if program is None:
            return
        program.process.terminate()
        self._wait(lambda: program.process.poll() is not None, f"{program.kind} ends after SIGTERM")
        status = program.process.returncode
        # It may have had no handler yet.
        assert status in (0, -signal.SIGTERM), f"{program.kind} ended with {status} after SIGTERM"
        if status:
            for journal in self.journals:
                journal.record("killed", program.prefix(program.process.pid))
        self.counts["terminated"] += 1
        self._replace(program)

    def pause_a_holder(self) -> None:
        found = self._holder()
        if found is not None and not found[0].paused:
            self._pause(*found)

    def pause(self) -> None:
        program = self._one(lambda program: not program.paused)
        if program is not None:
            self._pause(program, self.chance.choice(program.pids()))

    def _pause(self, program: Program, pid: int) -> None:
        """Stops a process for some time."""
        stop([pid])
        held = self._tell("paused", program.prefix(pid))
        self.counts["paused in a section" if held else "paused elsewhere"] += 1
        program.paused[pid] = time.monotonic() + self.chance.choice(PAUSES_S)

    def stop_in_a_section(self) -> str:
        """Stops the only program in a section, until :meth:`resume`. Returns the name that it holds."""
        program = self.programs[0]
        pid = program.process.pid
        while True:
            wait_until(lambda: any(journal.history().open() for journal in self.journals), "a section begins")
            stop([pid])
            for journal in self.journals:
                if journal.history().open():
                    program.paused[pid] = float("inf")
                    return journal.name
            os.kill(pid, signal.SIGCONT)

    def history(self, name: str) -> History:
        return next(journal.history() for journal in self.journals if journal.name == name)

    def resume(self, now: Optional[float] = None) -> None:
        """Continues the processes whose pause is over; without a time, all."""
        for program in self.programs:
            for pid, end in list(program.paused.items()):
                if now is None or end <= now:
                    del program.paused[pid]
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for what a paused program may delay."""

        def is_so() -> bool:
            self.resume(time.monotonic())
            return condition()

        wait_until(is_so, what)

    def _one(self, condition: Callable[[Program], bool]) -> Optional[Program]:
        candidates = [program for program in self.programs if condition(program)]
        return self.chance.choice(candidates) if candidates else None

    def _replace(self, program: Program) -> None:
        assert program.process.stdin is not None
        program.process.stdin.close()
        # What it has started goes on without it.
        for pid in program.paused:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.programs.remove(program)
        self.counts["started again"] += 1
        self.start(program.kind)

    def turns(self, kind: str = "") -> int:
        """The sections of one kind of programs, or of all."""
        histories = [journal.history() for journal in self.journals]
        return sum(section.who.startswith(kind) for history in histories for section in history.sections)

    def wait_for_progress(self) -> None:
        """Waits until each name has been held again and again: nothing that was killed keeps it."""
        before = {journal.name: len(journal.history().sections) for journal in self.journals}

        def are_free() -> bool:
            return all(len(journal.history().sections) > before[journal.name] + 10 for journal in self.journals)

        wait_until(are_free, "all names are free after the storm")

    def faults(self) -> list[str]:
        """What the programs have found wrong. Counts their other events."""
        path = self.directory / "events"
        lines = path.read_text().splitlines() if path.exists() else []
        self.counts.update(line for line in lines if not line.startswith("fault"))
        return [line for line in lines if line.startswith("fault")]

    def verdicts(self) -> dict[str, Verdict]:
        return {journal.name: judge(journal.history()) for journal in self.journals}

    def close(self) -> None:
        """Kills all processes, also the children of killed programs."""
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for program in self.programs:
            program.process.wait()
            assert program.process.stdin is not None
            program.process.stdin.close()
        for journal in self.journals:
            journal.close()


def stop(pids: list[int]) -> None:
    """Stops processes, and waits until they are stopped: then they write nothing any more."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        wait_until(lambda: state_of(pid) in "TtZX", f"process {pid} is stopped")


def running_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def state_of(pid: int) -> str:
    fields = fields_of(pid)
    return fields[0] if fields else "X"


def group_of(pid: int) -> int:
    fields = fields_of(pid)
    # A process that has ended and was not waited for counts no more.
    return int(fields[2]) if fields and fields[0] not in "ZX" else 0


def fields_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name of the program; none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
