//! The message about a command line that cannot be parsed: one line, without secrets.

use clap::error::{Error, ErrorKind};

use crate::{
    cmd,
    exit::{self, Failure},
};

/// Answers `--help` and `--version`. For any other error returns the failure for wrong arguments.
pub(crate) fn parse_failure(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match cmd::print(&error.to_string()) {
            Ok(code) => Failure::silent(code),
            Err(failure) => failure,
        },
        _ => Failure::new(exit::USAGE, one_line(&error.to_string())),
    }
}

/// The error of clap and its tips, on one line and without the usage.
fn one_line(text: &str) -> String {
    let message = text.split("\nUsage:").next().unwrap_or_default();
    let message = message.split("\nFor more information").next().unwrap_or_default();
    let mut line = String::new();
    for word in message.trim_start_matches("error:").split_whitespace() {
        match word {
            "tip:" => line.push(';'),
            // A URL in a wrong place may contain a password.
            word if word.contains("://") => line += " (a URL)",
            word => line.extend([" ", word]),
        }
    }
    format!("{} (see --help)", line.trim_start())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Args;

    fn message(line: &[&str]) -> String {
        let failure = parse_failure(Args::try_parse_from(line).unwrap_err());
        assert_eq!(failure.code, exit::USAGE, "{line:?}");
        failure.message.unwrap()
    }

    #[test]
    fn usage_errors_are_one_line_with_a_hint() {
        for (line, words) in [
            (&["leasehold"][..], "requires a subcommand"),
            (&["leasehold", "run", "x"], "were not provided"),
            (&["leasehold", "run", "x", "-w", "10", "--", "true"], "write 10s"),
            (&["leasehold", "run", "--quite", "x", "--", "true"], "'--quiet'"),
            (&["leasehold", "run", "-n", "-w", "1s", "x", "--", "true"], "cannot be used with"),
            (&["leasehold", "break", "x"], "--token"),
            (&["leasehold", "run", "a\nb\n", "x", "--", "true"], "unexpected"),
        ] {
            let message = message(line);
            assert!(message.contains(words) && message.ends_with("(see --help)"), "{line:?}: {message}");
            assert!(!message.contains('\n') && !message.contains("Usage"), "{line:?}: {message}");
        }
    }

    #[test]
    fn a_misplaced_url_is_not_shown() {
        for line in [
            &["leasehold", "redis://:canary@h/", "run", "x", "--", "true"][..],
            &["leasehold", "--ulr=redis://:canary@h/", "run", "x"],
            &["leasehold", "run", "x", "redis://:canary@h/", "--", "true"],
        ] {
            assert!(!message(line).contains("canary"), "{line:?}: {}", message(line));
        }
    }
}
