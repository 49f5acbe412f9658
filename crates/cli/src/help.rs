//! Texts of `--help` and of the manual page. Their lines fit into a terminal of 80 columns.

/// Printed after the options of `run`.
pub(crate) const RUN: &str = "\
Examples:
  leasehold run nightly -- ./report.sh               wait for the lock, then run
  leasehold run -w 10s nightly -- ./report.sh        wait ten seconds at most
  leasehold run -n nightly -- ./report.sh            do not wait: 75 if taken
  leasehold run --limit 3 api -- ./call.sh           at most three at once
  leasehold run a --and b -- ./move.sh               hold both, or none
  leasehold run -n --at-least 55s tick -- ./job.sh   once a minute, for cron

Durations are written as 500ms, 30s, 5m or 1h30m. On engines whose holds are
leases, --grace is limited to a third of the granted ttl, so that CMD has ended
when the lease ends. On every engine CMD has ended when --max-hold has passed.

Where holds end with their process (ZooKeeper), leasehold keeps running until
--at-least has passed. A signal that ends it earlier frees NAME.

CMD gets LEASEHOLD_NAME, LEASEHOLD_CLAIM (the id in `show`), LEASEHOLD_TOKEN (a
number that grows with each grant), and LEASEHOLD_LINEAGE: tokens of different
lineages cannot be compared. With --and, LEASEHOLD_HOLDS has all holds as JSON:
name, mode, id, token, lineage. Names are acquired in byte order, in whatever
order they are given, so runs never wait for each other in a circle; a run
inside a run can: name all names in the outer run.

CMD runs in a process group of its own, in the foreground on a terminal. The
signals HUP INT QUIT TERM USR1 USR2 CONT and TSTP are forwarded to it.

When the lock is lost, or leasehold is killed (KILL), CMD and all its
descendants are ended, including those in sessions of their own. After a kill
NAME is free as soon as they have ended. For this leasehold is two processes;
the second is called lh-guardian. If both are killed, or lh-guardian under
--at-least, NAME is free after its ttl.

If it may create one, leasehold runs CMD in a cgroup of its own: as root, or as
a user with a delegated one (systemd-run --user --scope -p Delegate=yes
leasehold). -v prints its path, or why there is none. Then all processes in the
cgroup are ended, including those that became another user. If both processes
were killed, the next run of the same user in the same place ends the processes
that they left, before its own CMD starts.
Without a cgroup these processes are not ended:
  processes of CMD that became another user (sudo), unless leasehold is root:
  leasehold prints their pids, and after a kill NAME stays taken until they end;
  to avoid that, run leasehold itself under sudo
  processes that CMD started, if both are killed (CMD ends, unless set-uid)
Work that CMD gave to another service is never ended: docker, at, systemd-run,
ssh.

When CMD ends by itself, the processes that it left in the background continue.
On the file engine NAME stays taken until they have ended, as under flock,
unless -o or --at-least is given. On other engines NAME is free, so CMD should
wait for them.

LEASEHOLD_URL and LEASEHOLD_URL_FILE are removed from the environment of CMD:
the URL may contain a password, and CMD and its children could log it. A
leasehold inside CMD then needs a URL (78 without): by --url, or by --pass-url
of the outer run. A CMD of the same user can still read the environment of
leasehold. With ?password_file=/path the URL contains no password. A new
password in that file is used at the next connection.

The first URL found is used: --url, LEASEHOLD_URL, the file named by
LEASEHOLD_URL_FILE (mode 0600), /etc/leasehold/url. Without a URL the file
engine is used, whose locks exclude processes of this machine only. Its default
directory is /var/lib/leasehold for root, and .local/state/leasehold in the home
of other users: different users do not exclude each other without a shared
directory (--url file:///srv/locks).

Exit codes:
  CMD's own (128+n: ended by signal n), or
  64    wrong arguments
  69    the engine cannot be reached, refuses, or did not answer
  70    a bug in leasehold
  75    not acquired: taken (-E gives another code)
  76    the lock was lost while CMD ran
  77    missing or wrong credentials or permissions
  78    wrong URL or configuration
  126   CMD cannot be executed
  127   CMD is not found
  128+n signal n ended the wait";

/// Printed after the options of `break`.
pub(crate) const BREAK: &str = "\
Exit codes:
  0     the hold has ended
  1     NAME is not held, or is held under another token
  69    the holder was asked to stop and still holds NAME
  77    the engine cannot break this hold

On the file engine a lock cannot be taken from a program. `leasehold run` is
asked to stop its command and itself. For every other holder the request is
refused, with its pid.";
