//! On a terminal, which `script` of util-linux creates: the foreground, Ctrl-C, Ctrl-Z.

use crate::{
    start::{LEASEHOLD, program},
    tools::{Dir, Running, code, stdout, until},
};

const CTRL_C: &str = "\u{3}";
const CTRL_Z: &str = "\u{1a}";

/// Runs a shell command on a new terminal. The input of the process is the keyboard of the terminal.
fn on_terminal(dir: &Dir, line: &str) -> Running {
    let mut command = program("script");
    command.args(["-qec", line, "/dev/null"]).env("LEASEHOLD_URL", dir.url()).env("SHELL", "/bin/sh");
    Running::start(command)
}

fn leasehold(args: &str) -> String {
    format!("exec {LEASEHOLD} {args}")
}

#[test]
fn cmd_gets_the_foreground_and_gives_it_back() {
    let dir = Dir::new();
    // `ps` prints a + for processes in the foreground group.
    let inner = "sh -c 'ps -o stat= -p $$; read line; echo got $line'";
    let line = format!("{LEASEHOLD} run x -- {inner}; ps -o stat= -p $$; echo end");
    let mut running = on_terminal(&dir, &line);
    assert!(running.line().contains('+'), "CMD is in the foreground");
    running.write("typed\n");
    running.read_until("got typed");
    let rest = stdout(&running.output());
    assert!(rest.contains('+') && rest.contains("end"), "the shell is in the foreground again: {rest:?}");
}

#[test]
fn a_wait_on_a_terminal_shows_the_holder() {
    let dir = Dir::new();
    let holder = dir.hold("x");
    let mut waiting = on_terminal(&dir, &leasehold("run x -- true"));
    waiting.read_until("leasehold: file lock \"x\": waiting: held by ");
    assert_eq!(code(&holder.output()), 0);
    assert_eq!(code(&waiting.wait()), 0);
}

#[test]
fn ctrl_c_ends_cmd_and_the_wait() {
    let dir = Dir::new();
    let mut running = on_terminal(&dir, &leasehold("run x -- sh -c 'echo ready; exec sleep 1000'"));
    running.read_until("ready");
    running.write(CTRL_C);
    assert_eq!(code(&running.wait()), 130);
    let holder = dir.hold("x");
    let mut waiting = on_terminal(&dir, &leasehold("run x -- true"));
    dir.until_waiters("x", 1);
    waiting.write(CTRL_C);
    assert_eq!(code(&waiting.wait()), 130);
    dir.until_waiters("x", 0);
    assert_eq!(code(&holder.output()), 0);
}

#[test]
fn ctrl_z_returns_to_the_prompt_and_fg_continues() {
    let dir = Dir::new();
    let mut shell = on_terminal(&dir, "bash --norc --noprofile -i");
    shell.write(&format!(
        "PS1=prompt-; {LEASEHOLD} run x -- sh -c 'echo rea''dy; read line; echo got $line; exit 7'\n"
    ));
    shell.read_until("ready\r\n");
    shell.write(CTRL_Z);
    shell.read_until("Stopped");
    assert_eq!(dir.code(&["run", "-n", "x", "--", "true"]), 75, "a stopped holder keeps it");
    shell.write("fg\n");
    shell.read_until("run x -- sh -c");
    shell.write("again\n");
    shell.read_until("got again");
    shell.write("echo code-$?\n");
    shell.read_until("code-7");
    shell.write("exit\n");
    drop(shell.wait());
}

#[test]
fn a_pager_behind_a_pipe_keeps_the_terminal() {
    let dir = Dir::new();
    // The pager of this test reads the keyboard from the terminal once it has its input.
    let line = format!("{LEASEHOLD} run x -- echo paged | sh -c 'cat; read key </dev/tty; echo key $key'");
    let mut running = on_terminal(&dir, &line);
    running.read_until("paged");
    running.write("pressed\n");
    running.read_until("key pressed");
    drop(running.output());
}

#[test]
fn cmd_in_a_pipeline_gets_the_terminal_when_it_reads() {
    let dir = Dir::new();
    let line = format!("{LEASEHOLD} run x -- sh -c 'echo ready; read key </dev/tty; echo key $key' | cat");
    let mut running = on_terminal(&dir, &line);
    running.read_until("ready");
    running.write("pressed\n");
    running.read_until("key pressed");
    drop(running.output());
    until("free", || dir.code(&["run", "-n", "x", "--", "true"]) == 0);
}
