"""The journal in which all programs of a test record their sections, in the directory of the test: see e2e/src/turns.rs."""

import os


class Journal:
    def __init__(self, directory, who):
        self.directory, self.who = directory, who
        self.file = os.open(os.path.join(directory, "journal"), os.O_WRONLY | os.O_APPEND)

    def enter(self):
        os.write(self.file, f"enter {self.who} -\n".encode())

    def leave(self, how):
        """how: "held", or "slept" if the machine did not run the program for long."""
        os.write(self.file, f"leave {self.who} {how}\n".encode())

    def lingers(self):
        """Whether the test wants this program to stay in its section."""
        try:
            return open(os.path.join(self.directory, "linger")).read() == self.who.split("-")[0]
        except FileNotFoundError:
            return False

    def is_over(self):
        return os.path.exists(os.path.join(self.directory, "over"))
