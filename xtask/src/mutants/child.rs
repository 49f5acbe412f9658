//! Runs a command with a time limit. At the limit, ends the command and all processes that it started.

use std::{
    fs::{self, File},
    io,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use crate::run::under;

/// The result of a command.
#[derive(Debug)]
pub(super) struct CommandResult {
    pub(super) ended: Ending,
    /// The text that the command wrote to standard output and standard error.
    pub(super) output: String,
    pub(super) took: Duration,
}

/// How a command ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// The command ended by itself.
    ByItself(ExitStatus),
    /// The command was killed at its time limit.
    AtLimit,
}

/// Runs `command` for at most `limit`, rounded down to whole seconds. The command writes its output to the file `log`.
pub(super) fn run(command: &Command, log: &Path, limit: Duration) -> Result<CommandResult, String> {
    let failed = |error: io::Error| format!("{}: {error}", log.display());
    let file = File::create(log).map_err(failed)?;
    let mut limited = limited(command, limit);
    limited.stdin(Stdio::null()).stdout(file.try_clone().map_err(failed)?).stderr(file);
    let begin = Instant::now();
    let status = limited.status().map_err(|error| format!("`timeout` cannot be run: {error}"))?;
    let took = begin.elapsed();
    let ended = if took < limit { Ending::ByItself(status) } else { Ending::AtLimit };
    let output = fs::read(log).map_err(failed)?;
    Ok(CommandResult { ended, output: String::from_utf8_lossy(&output).into_owned(), took })
}

/// Wraps the command in `timeout`, which gives it a process group and ends the whole group at the limit, even if this
/// process has ended by then.
fn limited(command: &Command, limit: Duration) -> Command {
    under(&["timeout", "--signal=KILL", &limit.as_secs().to_string()], command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> CommandResult {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("WORD", "word");
        let log = std::env::temp_dir().join(format!("xtask-{}-{}", std::process::id(), script.len()));
        let run = run(&command, &log, limit).unwrap();
        fs::remove_file(log).unwrap();
        run
    }

    #[test]
    fn output_and_exit_status_of_a_command_are_returned() {
        let run = shell("echo $WORD; echo worse >&2; exit 3", Duration::from_secs(60));
        assert!(matches!(run.ended, Ending::ByItself(status) if status.code() == Some(3)), "{run:?}");
        assert_eq!(run.output, "word\nworse\n");
    }

    #[test]
    fn a_command_is_killed_at_its_limit_with_its_children() {
        let run = shell("sleep 600 & echo $!; wait", Duration::from_secs(1));
        assert!(matches!(run.ended, Ending::AtLimit), "{run:?}");
        // A process that has ended has an empty command line, even if it is not reaped yet.
        let is_alive =
            || fs::read(format!("/proc/{}/cmdline", run.output.trim())).is_ok_and(|line| !line.is_empty());
        let until = Instant::now() + Duration::from_secs(60);
        while is_alive() {
            assert!(Instant::now() < until, "process {} was left", run.output);
            std::thread::yield_now();
        }
    }
}
