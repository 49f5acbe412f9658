//! Runs a command, shows its output and adds it to a log.

use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use crate::run::under;

/// The time limit of a command, in seconds. It is longer than the longest share of a part, so that only a command that
/// hangs is ended.
const LIMIT: &str = "14400";

/// Runs a command until it ends. Shows each line that it prints, and adds the line to the file `log`.
///
/// # Errors
/// When the command cannot be run, or ends without success.
pub(super) fn run_logged(command: &mut Command, log: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", log.display());
    let mut file = OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
    let mut limited = limited(command);
    let child = limited.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("`timeout` cannot be run: {error}"))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.map_err(failed)?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            writeln!(file, "{line}").map_err(failed)?;
        }
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(format!("it ended with {status}: see {}", log.display())) }
}

/// Wraps the command in `timeout`. It stays in the foreground, so that an interrupt of this process interrupts the
/// command too.
fn limited(command: &Command) -> Command {
    under(&["timeout", "--foreground", "--signal=KILL", LIMIT], command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_is_logged_even_of_a_failed_command() {
        let log = std::env::temp_dir().join(format!("xtask-output-{}", std::process::id()));
        let shell =
            |script: &str| run_logged(Command::new("sh").args(["-c", script]).env("WORD", "one"), &log);
        assert_eq!(shell("echo $WORD"), Ok(()));
        assert!(shell("echo two; exit 3").unwrap_err().contains("exit status: 3"));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "one\ntwo\n");
        std::fs::remove_file(log).unwrap();
    }
}
