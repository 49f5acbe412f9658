"""The journals of a storm: one for each name, in which programs record their sections, and the judge of them.

A journal is a file to which each line is appended by one call, so that its lines are in the order of the events:

* ``enter WHO TOKEN``: a section begins; ``-`` is the token of a lock that has none.
* ``leave WHO``: the section ends.
* ``was WHO held`` or ``was WHO lost``: written after ``leave``, whether the lock was certainly held until then.
* ``leave WHO held``: both in one line.
* ``paused WHO-``: all programs whose names begin so are stopped for a time.
* ``killed WHO-``: they are stopped, and are killed after this line.

The judge uses no knowledge of the lock: two sections that were both held must not overlap.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional


class Journal:
    """The journal of one name. Any process may append to it, also one that was forked from the one that opened it."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        #: The folder of the name, which a program in Rust expects.
        self.folder = directory / name
        self.folder.mkdir(exist_ok=True)
        self._file = os.open(self.folder / "journal", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._history = History()
        self._read = 0

    def record(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def history(self) -> History:
        """What the journal tells now."""
        added = os.pread(self._file, os.fstat(self._file).st_size - self._read, self._read)
        # The last line may be there in part.
        added = added[: added.rfind(b"\n") + 1]
        self._read += len(added)
        for line in added.decode().splitlines():
            self._history.add(*line.split())
        return self._history

    def close(self) -> None:
        os.close(self._file)


@dataclass
class Section:
    """A section of a journal. Its moments are the numbers of lines."""

    who: str
    token: str
    begin: int
    end: Optional[int] = None
    #: Whether the lock was certainly held from the begin to the end.
    is_held: bool = False
    #: Whether the program was paused in it, so that a lease may have ended.
    was_paused: bool = False
    was_killed: bool = False


@dataclass
class Verdict:
    """What the judge found: the first four must be zero, empty."""

    overlaps: int = 0
    #: Tokens that are not larger than each earlier one.
    falls: int = 0
    examples: str = ""
    held: int = 0
    lost: int = 0
    killed: int = 0


class History:
    """The sections of a journal, in the order of their begins."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self._lines = 0
        # Of each program, the section that has not ended, or that has ended and for which `was` is missing.
        self._last: dict[str, Section] = {}

    def add(self, event: str, who: str, *rest: str) -> None:
        """The next line."""
        self._lines += 1
        section = self._last.get(who)
        if event == "enter":
            self._last[who] = Section(who, rest[0], self._lines)
            self.sections.append(self._last[who])
        elif event == "leave" and section is not None:
            # A program that is interrupted while it records an end records it twice.
            section.end = self._lines if section.end is None else section.end
            section.is_held = rest == ("held",)
        elif event == "was" and section is not None:
            self._last.pop(who).is_held = rest == ("held",)
        elif event == "paused":
            for section in self.open(who):
                section.was_paused = True
        elif event == "killed":
            for section in self.open(who):
                section.end, section.was_killed = self._lines, True
                # It was stopped in its section, and its lease lasts longer than the section did.
                section.is_held = not section.was_paused
            self._last = {name: section for name, section in self._last.items() if not name.startswith(who)}

    def open(self, prefix: str = "") -> list[Section]:
        """The sections in which programs are whose names begin so."""
        last = self._last.values()
        return [section for section in last if section.who.startswith(prefix) and section.end is None]


def judge(history: History) -> Verdict:
    verdict = Verdict()
    latest: Optional[Section] = None
    newest = 0
    for section in history.sections:
        verdict.killed += section.was_killed
        verdict.lost += section.end is not None and not section.is_held
        token = 0 if section.token == "-" else int(section.token)
        if section.is_held and section.end is not None:
            verdict.held += 1
            if latest is not None and latest.end is not None and section.begin < latest.end:
                verdict.overlaps += 1
                verdict.examples += f"{latest} overlaps {section}\n"
            if latest is None or latest.end is None or section.end > latest.end:
                latest = section
            if token and token <= newest:
                verdict.falls += 1
                verdict.examples += f"{section} comes after token {newest}\n"
        newest = max(newest, token)
    return verdict
