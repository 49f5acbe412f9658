//! Texts of `--help` and of the manual page. Their lines fit into a terminal of 80 columns.

/// Printed after the options of `run`.
pub(crate) const RUN: &str = "\
Examples:
  leasehold run nightly -- ./report.sh               wait for the lock, then run
  leasehold run -w 10s nightly -- ./report.sh        wait ten seconds at most
  leasehold run -n nightly -- ./report.sh            do not wait: 75 if taken
  leasehold run --limit 3 api -- ./call.sh           at most three at once
  leasehold run a --and b -- ./move.sh               hold both, or none
  leasehold run nightly -c './a.sh | ./b.sh'         a text for the shell
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

The line of --report is a JSON object, also for a run that was not granted:
name, engine, outcome (ran, ran_before for once, not_acquired, lost, failed),
exit (the exit code), lost (the reason), waited_ms, held_ms, token, lineage,
holds (as in LEASEHOLD_HOLDS), message (also with -q). A file is replaced, a
descriptor gets one more line.

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

/// Printed after the options of `elect`.
pub(crate) const ELECT: &str = "\
Examples:
  leasehold elect scheduler --value 10.0.0.7:8080 -- ./scheduler
  leasehold leader scheduler                   prints: 17 10.0.0.7:8080

Waits until this process leads, publishes the value, runs CMD, and resigns when
CMD ends: the next candidate leads at once. `leasehold leader` prints the value.
A leader that cannot renew its lease is lost: CMD is ended (76) before another
process leads. To lead again after a loss, start the command again.

The term of a leader is LEASEHOLD_TOKEN in the environment of CMD: each later
leader has a larger one. CMD sends it with its orders, and the receivers refuse
a smaller one.

An election is a lock: `leasehold run` of the same NAME waits for the leader.
All else is as with `leasehold run`: signals, the environment of CMD, its end
when leasehold is killed, and the exit codes (see `leasehold run --help`).
Engines that store no memos have elections without --value (78 with it).";

/// Printed after the options of `leader`.
pub(crate) const LEADER: &str = "\
Examples:
  leasehold leader scheduler                   prints: 17 10.0.0.7:8080
  read -r term addr < <(leasehold leader scheduler) || echo nobody leads
  leasehold leader --follow --json scheduler | ./update-proxy

Prints one line, the term and the value of the leader, with a space between
them. A dash is a leader without a value. With --follow also `vacant` (nobody
leads) and `unsure` (the engine could not be read for 30 s, or shows an earlier
term than before: the last leader may have been replaced).

JSON: name, engine, state (held, vacant, unsure), value, term, lineage. The last
three are null unless the state is held.

Exit codes:
  0     there is a leader
  1     nobody leads (with --json the line is printed all the same)
  69    the engine cannot be reached, refuses, or did not answer
  77    missing or wrong credentials or permissions
  78    wrong URL or configuration; or the engine stores no memos
  128+n signal n ended --follow (141: its reader has gone)";

/// Printed after the options of `once`.
pub(crate) const ONCE: &str = "\
Examples:
  leasehold once --for 30d migrate-v7 -- ./migrate.sh
  leasehold once --for 1d --show-result order-17 -- ./charge.sh 17

Runs CMD, unless it ran with success for this KEY within the time of --for, by
any user of the engine: then exits 0 at once. While another run goes on, waits
for its end (-w and -n limit that: 75).

A CMD that fails, loses the lock, or is killed with leasehold stores nothing:
its exit code is passed on, and the next call runs CMD. LEASEHOLD_PREVIOUS tells
that CMD how the hold before it ended: clean (released, also after a failure),
or lapsed (a crash), broken, abandoned, unknown: then an effect may be half
done. Between the effect of CMD and the record of its success leasehold can be
killed. So CMD runs at least one time, not exactly one time.

With --show-result each call prints the same: the standard output of CMD, which
then is a pipe, is passed on and stored with its success, and later calls print
it. At most 64 KiB are stored; leasehold says when it cuts the output off.
Without it nothing of the output is stored, and later calls print nothing.
Processes that CMD leaves in the background cannot print after its end.

All else is as with `leasehold run`: signals, the environment of CMD, its end
when leasehold is killed, and the exit codes (see `leasehold run --help`). More
exit codes:
  0     CMD ended with 0 and that is stored, or it ran already
  69    CMD ended with 0, but it is not known that this is stored
  75    another run went on during the whole wait
  78    the engine stores no memos";

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
