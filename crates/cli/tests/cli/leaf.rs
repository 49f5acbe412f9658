//! The control group of CMD: its processes end with the lock, even as another user, and even if front or guardian was
//! killed.

use std::fs;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    groups::{BECOME, Group, Nobody},
    start::LEASEHOLD,
    tools::{Dir, Running, code, finish, is_running, one_line, state, stderr, stdout, until},
};

/// A CMD that prints the pids of five processes that it starts: one in a session of its own, one under nohup, one that
/// ignores all signals it can, one whose parent has ended, and one that became another user.
const SCATTERS: &str = "
quietly() { \"$@\" </dev/null >/dev/null 2>&1 & echo $!; }
quietly setsid sleep 1000
quietly nohup sleep 1000
(trap '' HUP INT TERM USR1 USR2; quietly setsid sleep 1000)
setsid sh -c 'setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!'
quietly setsid setpriv --reuid=65534 --regid=65534 --clear-groups sleep 1000
echo ready
read line";

fn scattered(running: &mut Running) -> Vec<i32> {
    let pids = (0..5).map(|_| running.number()).collect();
    assert_eq!(running.line(), "ready");
    pids
}

/// A script that exits with 3 if one of them runs.
fn check_script(pids: &[i32]) -> String {
    let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
    format!(
        "for pid in {}; do if grep -qs '^State:.[^ZX]' /proc/$pid/status; then exit 3; fi; done",
        pids.join(" ")
    )
}

fn kill_both(mut running: Running) {
    running.kill_both();
    // Processes that continue have its output open, so reading to its end would block.
    until("the end of both", || running.has_ended());
}

/// The group of a process.
fn group_of(pid: i32) -> String {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned()
}

#[test]
fn cmd_runs_in_its_own_group_which_is_removed() {
    let (dir, group) = (Dir::new(), Group::new());
    let output = finish(group.leasehold(&dir, &["run", "-v", "x", "--", "cat", "/proc/self/cgroup"]));
    assert_eq!(code(&output), 0, "{output:?}");
    let inner = stdout(&output);
    let inner = inner.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    assert!(inner.starts_with(&format!("{}/leasehold-", group.name())), "{inner}");
    let message = stderr(&output);
    let name = inner.rsplit_once('/').unwrap().1;
    assert!(message.contains(&format!("{}/{name}", group.path().display())), "{message}");
    assert!(group.below().is_empty());
    // No group is left by a CMD that cannot be started.
    assert_eq!(code(&finish(group.leasehold(&dir, &["run", "x", "--", "/nonexistent"]))), 127);
    assert!(group.below().is_empty());
}

#[test]
fn when_both_are_killed_the_next_run_ends_their_tree() {
    let (dir, group) = (Dir::new(), Group::new());
    let mut holder = Running::start(group.leasehold(&dir, &["run", "-o", "x", "--", "sh", "-c", SCATTERS]));
    let pids = scattered(&mut holder);
    kill_both(holder);
    assert!(pids.iter().all(|pid| is_running(*pid)), "no process has ended them yet");
    // A run of any name ends them, because they run without a lock.
    assert_eq!(
        code(&finish(group.leasehold(&dir, &["run", "y", "--", "sh", "-c", &check_script(&pids)]))),
        0
    );
    assert!(group.below().is_empty());
}

/// They hold the descriptor of the lock file, so the lock cannot be granted before they end.
#[test]
fn when_both_are_killed_a_file_waiter_or_try_ends_their_tree() {
    for (wait, patience) in [("-n", None), ("-w", Some("60s"))] {
        let (dir, group) = (Dir::new(), Group::new());
        let mut holder = Running::start(group.leasehold(&dir, &["run", "x", "--", "sh", "-c", SCATTERS]));
        let pids = scattered(&mut holder);
        kill_both(holder);
        let options: Vec<_> = ["run", wait].into_iter().chain(patience).collect();
        let next =
            group.leasehold(&dir, &[&options[..], &["x", "--", "sh", "-c", &check_script(&pids)]].concat());
        let output = finish(next);
        assert_eq!(code(&output), 0, "{wait}: {output:?}");
        assert!(group.below().is_empty());
    }
}

#[test]
fn root_processes_end_when_the_lock_is_lost() {
    let (dir, group) = (Dir::new(), Group::of_nobody());
    let nobody = Nobody::new(&dir, &group);
    let options = ["run", "--max-hold", "2s", "--grace", "100ms", "x", "--", "sh", "-c", BECOME];
    let mut running = Running::start(nobody.leasehold(&options));
    let root = running.number();
    until("the end", || running.has_ended());
    // Checked before its output is read, which would wait for that process.
    assert!(!is_running(root));
    let output = running.wait();
    assert_eq!(code(&output), 76);
    assert!(one_line(&output).contains("--max-hold ended"), "no complaint: {output:?}");
    assert!(group.below().is_empty());
}

#[test]
fn root_processes_end_whichever_process_is_killed() {
    let (dir, group) = (Dir::new(), Group::of_nobody());
    let nobody = Nobody::new(&dir, &group);
    // With -o no inherited descriptor holds the lock.
    let start = || Running::start(nobody.leasehold(&["run", "-o", "x", "--", "sh", "-c", BECOME]));
    let next = |root: i32| finish(nobody.leasehold(&["run", "x", "--", "sh", "-c", &check_script(&[root])]));

    let mut front = start();
    let root = front.number();
    front.signal(Signal::SIGKILL);
    assert_eq!(code(&next(root)), 0, "the guardian ends it");

    let mut guardian = start();
    let root = guardian.number();
    guardian.signal_guardian(Signal::SIGKILL);
    until("the end", || guardian.has_ended());
    assert!(!is_running(root), "the front ends it");
    let output = guardian.wait();
    assert!(code(&output) == 70 && one_line(&output).contains("SIGKILL"), "{output:?}");
    assert!(group.below().is_empty());

    let mut both = start();
    let root = both.number();
    kill_both(both);
    assert!(is_running(root));
    assert_eq!(code(&next(root)), 0, "the next one ends it");
    assert!(group.below().is_empty());
}

#[test]
fn background_processes_of_cmd_continue_in_the_outer_group() {
    let (dir, group) = (Dir::new(), Group::new());
    let script = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!";
    let mut running = Running::start(group.leasehold(&dir, &["run", "-o", "x", "--", "sh", "-c", script]));
    let leftover = running.number();
    assert_eq!(code(&running.output()), 0);
    assert_eq!(group_of(leftover), group.name());
    assert!(group.below().is_empty());
    assert_eq!(code(&finish(group.leasehold(&dir, &["run", "x", "--", "true"]))), 0);
    assert!(is_running(leftover), "no run ends it");
}

#[test]
fn a_run_spares_groups_that_its_user_did_not_leave() {
    let (dir, group) = (Dir::new(), Group::new());
    // A group that an administrator named alike, the group of another user's killed run, and a run that continues.
    let mut admins = group.with_process("leasehold-1-1", 0o755);
    let mut other_users = group.with_process("leasehold-2-2", 0o711);
    group.give("leasehold-2-2");
    let mut lives =
        Running::start(group.leasehold(&dir, &["run", "x", "--", "sh", "-c", "echo $$; read line; true"]));
    let cmd = lives.number();
    let mut left = group.with_process("leasehold-3-3", 0o711);
    assert_eq!(code(&finish(group.leasehold(&dir, &["run", "y", "--", "true"]))), 0);
    until("the end of what was left", || left.has_ended());
    assert!(!admins.has_ended() && !other_users.has_ended() && is_running(cmd));
    assert_eq!(code(&lives.output()), 0);
    assert_eq!(group.below().len(), 2);
}

#[test]
fn a_nested_run_has_a_nested_group() {
    let (dir, group) = (Dir::new(), Group::new());
    let inner = format!("{LEASEHOLD} run --url {} y -- sh -c \"$0\"", dir.url());
    let outer = |options: &[&str], script: &str| {
        group.leasehold(&dir, &[&["run"], options, &["x", "--", "sh", "-c", &inner, script]].concat())
    };
    let output = finish(outer(&[], "cat /proc/self/cgroup"));
    assert_eq!(stdout(&output).matches("/leasehold-").count(), 2, "{output:?}");
    assert!(group.below().is_empty());
    // The loss of the outer lock ends both, and removes the inner group with the outer one.
    let script = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; read line";
    let mut running = Running::start(outer(&["--max-hold", "2s", "--grace", "0s"], script));
    let inner = running.number();
    assert_eq!(code(&running.wait()), 76);
    assert!(!is_running(inner));
    assert!(group.below().is_empty());
}

#[test]
fn a_run_can_outlive_its_outer_run() {
    let (dir, group) = (Dir::new(), Group::new());
    let script = format!(
        "setsid {LEASEHOLD} run --url {} y -- sh -c 'echo $PPID $$; exec sleep 1000' 2>/dev/null & read line",
        dir.url()
    );
    let mut outer = Running::start(group.leasehold(&dir, &["run", "-o", "x", "--", "sh", "-c", &script]));
    let pids = outer.line();
    let pids: Vec<i32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    // The inner run has its output open.
    outer.write("\n");
    until("the end of the outer run", || outer.has_ended());
    assert_eq!(group_of(pids[0]), group.name(), "the guardian was moved out of the group of the outer run");
    let next = || assert_eq!(code(&finish(group.leasehold(&dir, &["run", "x", "--", "true"]))), 0);
    next();
    assert!(pids.iter().all(|pid| is_running(*pid)));
    assert!(
        group_of(pids[1]).matches("/leasehold-").count() == 2,
        "its CMD is still in a group that ends with its lock"
    );
    kill(Pid::from_raw(pids[1]), Signal::SIGTERM).unwrap();
    until("the end of the inner run", || state(pids[0]).is_none_or(|state| state == 'Z'));
    next();
    assert!(group.below().is_empty());
}

/// Runs a command that has no group of its own. Returns the message about that.
fn without_group(mut command: std::process::Command) -> String {
    command.stdin(std::process::Stdio::null());
    let output = finish(command);
    assert_eq!((code(&output), stdout(&output).as_str()), (0, "done\n"), "{output:?}");
    let message = stderr(&output);
    let line = message.lines().find(|line| line.contains("no cgroup of its own"));
    line.unwrap_or_else(|| panic!("{message}")).to_owned()
}

#[test]
fn a_run_without_a_group_continues_and_reports_why() {
    const RUN: [&str; 6] = ["run", "-v", "x", "--", "echo", "done"];
    let (dir, group) = (Dir::new(), Group::new());
    let nobody = Nobody::new(&dir, &group);
    let message = without_group(nobody.leasehold(&RUN));
    assert!(message.contains("Permission denied") && message.contains("become another user"), "{message}");
    // A directory can be created there, but no process can move into it.
    group.give("");
    let message = without_group(nobody.leasehold(&RUN));
    assert!(message.contains("EACCES"), "{message}");
    assert!(group.below().is_empty());
}

/// A `leasehold` in a mount namespace of its own, after these `mounts` commands.
fn behind(group: &Group, dir: &Dir, mounts: &str) -> std::process::Command {
    let script = format!("{mounts} && exec {LEASEHOLD} run -v x -- echo done");
    let mut command = group.program(&["unshare", "--mount", "sh", "-c", &script]);
    command.env("LEASEHOLD_URL", dir.url());
    command
}

#[test]
fn no_group_is_made_on_a_read_only_cgroup_mount() {
    let (dir, group) = (Dir::new(), Group::new());
    let mounts = format!("mount -o remount,bind,ro {}", crate::groups::mount().display());
    let message = without_group(behind(&group, &dir, &mounts));
    assert!(message.contains("Read-only"), "{message}");
    let message =
        without_group(behind(&group, &dir, &format!("umount {}", crate::groups::mount().display())));
    assert!(message.contains("cgroup v2"), "{message}");
}

#[test]
fn no_group_is_made_in_an_undelegated_systemd_unit() {
    let (dir, group) = (Dir::new(), Group::new());
    let unit = group.path().join("report.service");
    fs::create_dir(&unit).unwrap();
    let mounts = "mount -t tmpfs none /run && mkdir -p /run/systemd/system";
    let run = || {
        let mut command =
            behind(&group, &dir, &format!("echo 0 >{}/cgroup.procs && {mounts}", unit.display()));
        command.env("LEASEHOLD_URL", dir.url());
        command
    };
    assert!(without_group(run()).contains("Delegate=yes"));
    rustix::fs::setxattr(&unit, "user.delegate", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    let message = stderr(&finish(run()));
    assert!(message.contains("report.service/leasehold-"), "{message}");
}
