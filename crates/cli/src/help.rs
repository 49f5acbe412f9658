//! Texts of `--help` and of the manual page, wrapped for a terminal of 80 columns.

/// Printed after the options of `run`.
pub(crate) const RUN: &str = "\
Examples:
  leasehold run nightly -- ./report.sh               wait for the lock, then run
  leasehold run -w 10s nightly -- ./report.sh        wait ten seconds at most
  leasehold run -n nightly -- ./report.sh            do not wait: 75 if taken
  leasehold run --limit 3 api -- ./call.sh           at most three at once
  leasehold run -n --at-least 55s tick -- ./job.sh   once a minute, for cron

Durations are written 500ms, 30s, 5m, 1h30m. On engines whose holds are leases
the grace is at most a third of what the engine granted: CMD is gone when the
lease ends. Likewise all is over when --max-hold is, on every engine.

Where holds end with their process (ZooKeeper), leasehold stays and holds until
--at-least has passed. A signal that would end it does, and NAME is free then.

CMD gets LEASEHOLD_NAME, LEASEHOLD_CLAIM (the id in `show`), LEASEHOLD_TOKEN, a
number that grows with each grant, and LEASEHOLD_LINEAGE: where that changes,
numbers begin anew. It runs in a process group of its own, in the foreground on a terminal.
The signals HUP INT QUIT TERM USR1 USR2 CONT and TSTP are passed on to it.

When the lock is lost, or leasehold is killed (KILL), CMD is ended with all that
descends from it, also in sessions of its own; after a kill NAME is free as soon
as they are gone. leasehold is two processes for that, the second one is called
lh-guardian. If both are killed, or lh-guardian under --at-least, NAME is free
after its ttl.

Where it may make one, leasehold runs CMD in a cgroup of its own: as root, or as
a user who was given one (systemd-run --user --scope -p Delegate=yes leasehold).
-v says its path, or why there is none. All that is in it is ended then, also
processes that became another user; and if both were killed, the next run of the
same user in the same place ends what they left, before its own CMD starts.
Without a cgroup are not ended:
  processes of CMD that became another user (sudo), unless leasehold is root: it
  says so, with their numbers, and after a kill NAME stays taken until they end;
  run leasehold itself under sudo then
  what CMD has started, if both are killed (CMD itself ends, unless set-uid)
Never ended is work that CMD handed to others: docker, at, systemd-run, ssh.

When CMD ends by itself, what it left in the background goes on. On the file
engine NAME stays taken until that has ended, as under flock, unless -o or
--at-least is given; on the others it is free, so CMD should wait for it.

LEASEHOLD_URL and LEASEHOLD_URL_FILE are removed from the environment of CMD: the
URL may hold a password, and CMD and all that it starts could log it. A leasehold
within CMD needs a URL then (78 without), by --url, or from the run above it by
--pass-url. A CMD of the same user can still read the environment of leasehold.
With ?password_file=/path the URL holds no password, and a new one is used as
soon as it stands in the file and the connection is made again.

The URL of the engine, first found wins: --url, LEASEHOLD_URL, the file named by
LEASEHOLD_URL_FILE (mode 0600), /etc/leasehold/url, and else the file engine,
whose locks are those of this machine. Its default directory is
/var/lib/leasehold for root and .local/state/leasehold in the home of others:
different users do not exclude each other without a shared directory
(--url file:///srv/locks).

Exit codes:
  CMD's own (128+n: ended by signal n), or
  64    wrong arguments
  69    the engine cannot be reached, refuses, or did not answer
  70    a bug of leasehold
  75    not acquired: taken (-E gives another code)
  76    the lock was lost while CMD ran
  77    credentials or permissions
  78    URL or configuration
  126   CMD cannot be executed
  127   CMD is not found
  128+n signal n ended the wait";

/// Printed after the options of `break`.
pub(crate) const BREAK: &str = "\
Exit codes:
  0     the hold has ended
  1     nothing is held, or under another token
  69    the holder was asked to stop and still holds
  77    the engine cannot break this hold

On the file engine nobody can take a lock from a program: `leasehold run` is
asked to stop its command and itself; every other holder is refused, with its
pid.";
