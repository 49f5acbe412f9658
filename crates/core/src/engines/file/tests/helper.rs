//! Other processes: this test binary, run again; it obeys orders on its standard input.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use super::*;

/// The environment variable that names the lock directory of a helper.
const DIR_VARIABLE: &str = "LEASEHOLD_TEST_HELPER_DIR";
/// The beginning of each line of the helper that is a reply; the lines of the test runner begin otherwise.
const REPLY_PREFIX: &str = "helper: ";

/// A process with an engine of its own; killed when dropped.
pub(super) struct Helper {
    pub(super) child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Helper {
    pub(super) fn start(dir: &Path) -> Self {
        Self::start_as(&[], dir)
    }

    /// Starts a helper by the command `prefix`, which runs the command after it.
    pub(super) fn start_as(prefix: &[&str], dir: &Path) -> Self {
        let exe = std::env::current_exe().unwrap();
        let helper_command = [
            exe.to_str().unwrap(),
            "--exact",
            "engines::file::tests::helper::helper_main",
            "--nocapture",
            "--test-threads=1",
        ];
        let words = [prefix, &helper_command].concat();
        let mut command = program(words[0]);
        command.args(&words[1..]).env(DIR_VARIABLE, dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// Sends an order and returns the answer.
    pub(super) fn request(&mut self, order: &str) -> String {
        self.send(order);
        self.read_reply()
    }

    /// Sends an order; `read_reply` returns the answer.
    pub(super) fn send(&mut self, order: &str) {
        writeln!(self.input.as_mut().unwrap(), "{order}").unwrap();
    }

    pub(super) fn read_reply(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the helper ended");
            if let Some((_, reply)) = line.split_once(REPLY_PREFIX) {
                return reply.trim_end().to_owned();
            }
        }
    }

    pub(super) fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id() as i32)
    }

    pub(super) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(self.pid(), signal).unwrap();
        if signal == nix::sys::signal::Signal::SIGSTOP {
            // Waits until the process has stopped, so that no later signal overtakes this one.
            nix::sys::wait::waitpid(self.pid(), Some(nix::sys::wait::WaitPidFlag::WUNTRACED)).unwrap();
        }
    }

    /// SIGKILL; returns when the process is gone.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `exclusive`, `shared` or `COUNT/LIMIT`.
fn mode(text: &str) -> Mode {
    match text {
        "exclusive" => Mode::Exclusive,
        "shared" => Mode::Shared,
        permits => {
            let (count, limit) = permits.split_once('/').unwrap();
            Mode::Permits { count: count.parse().unwrap(), limit: limit.parse().unwrap() }
        }
    }
}

fn print_reply(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{REPLY_PREFIX}{text}").unwrap();
    out.flush().unwrap();
}

/// An answer of the engine as the text of a reply.
fn describe(answer: Result<Answer, EngineError>) -> String {
    match answer {
        Ok(Answer::Held(grant)) => format!("held {}", grant.token),
        Ok(Answer::Waiting(hint)) => format!("waiting {}", hint.ahead.unwrap()),
        Ok(Answer::Taken(_)) => "taken".into(),
        Ok(Answer::Gone) => "gone".into(),
        Err(error) => format!("{:?}", error),
    }
}

/// The main function of the other process. In a normal test run, where [`DIR_VARIABLE`] is not set, it only
/// tests the function `mode`.
#[test]
fn helper_main() {
    let Ok(dir) = std::env::var(DIR_VARIABLE) else {
        assert_eq!(mode("1/2"), PERMIT, "the orders are understood");
        return;
    };
    let engine = match FileEngine::open(Some(dir.into()), Env::system()) {
        Ok(engine) => engine,
        Err(error) => return print_reply(&format!("{error:?}")),
    };
    let mut claims: Vec<Claim> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        print_reply(&match words[..] {
            ["claim", text, mode_word] => {
                claims.push(Claim { stops_on_term: true, ..claim(text, mode(mode_word)) });
                describe(create(&engine, claims.last().unwrap()))
            }
            ["try", text, mode_word] => describe(create(&engine, &try_claim(text, mode(mode_word)))),
            ["write-memo", bytes] => {
                let claim = claims.last().unwrap();
                let Ok(Answer::Held(grant)) = ask(&engine, claim) else { panic!("it holds") };
                format!("{:?}", super::memos::write(&engine, claim, &grant, 1, super::memos::memo(bytes)))
            }
            ["ask"] => describe(ask(&engine, claims.last().unwrap())),
            ["release"] => format!("{:?}", release(&engine, &claims.pop().unwrap())),
            ["list"] => match pollster::block_on(crate::Inspect::list(&engine, "")) {
                Ok(views) => {
                    let show_view = |view: &crate::View| format!("{}: {}", view.name, view.holders[0].owner);
                    views.iter().map(show_view).collect::<Vec<_>>().join(", ")
                }
                Err(error) => format!("{error:?}"),
            },
            ["release-after", seconds] => {
                let min_hold = Some(Duration::from_secs(seconds.parse().unwrap()));
                format!(
                    "{:?}",
                    send_release(
                        &engine,
                        Release { min_hold, ..release_request(&claims.pop().unwrap(), None) }
                    )
                )
            }
            ["use", count] => {
                let mut names = (0..count.parse::<u32>().unwrap()).map(|number| number.to_string());
                let failed = names.find_map(|name| {
                    let next = claim(&name, Mode::Exclusive);
                    let answer = create(&engine, &next);
                    let is_held = matches!(answer, Ok(Answer::Held(_)));
                    release(&engine, &next);
                    (!is_held).then(|| describe(answer))
                });
                failed.unwrap_or_else(|| "used".into())
            }
            ["many", prefix] => loop {
                let next = claim(&format!("{prefix}{}", claims.len()), Mode::Exclusive);
                claims.push(next.clone());
                match create(&engine, &next) {
                    Ok(Answer::Held(_)) => {}
                    other => break describe(other),
                }
            },
            _ => format!("unknown order {line:?}"),
        });
    }
}
