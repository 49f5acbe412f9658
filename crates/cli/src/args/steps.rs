//! The options of the commands that hold a lock across steps: `acquire`, `renew`, `check`, `release`.

use std::{path::PathBuf, time::Duration};

use super::{HoldOptions, duration};

#[derive(Debug, clap::Args)]
pub(crate) struct Acquire {
    /// How long to wait for the lock; without a limit by default
    #[arg(short, long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// How long the hold lasts without a renewal
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// Renew the hold for as long as this process lives, and then release it
    #[arg(long, value_name = "PID")]
    pub(crate) while_pid: Option<i32>,
    /// With --while-pid: release the hold after this time at the latest
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, requires = "while_pid")]
    pub(crate) max_hold: Option<Duration>,
    /// Write the handle to this file (mode 0600) instead of printing it. An older file is removed first
    #[arg(long, value_name = "PATH")]
    pub(crate) handle_file: Option<PathBuf>,
    /// Take the lock in shared mode: only exclusive holders are excluded
    #[arg(short, long, conflicts_with_all = ["permits", "limit"])]
    pub(crate) shared: bool,
    /// Take COUNT of the permits that --limit allows; 1 by default
    #[arg(long, value_name = "COUNT", requires = "limit")]
    pub(crate) permits: Option<u32>,
    /// The total number of permits, the same for all users of NAME
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u32>,
    /// Exit with N instead of 75 when the lock is not acquired
    #[arg(short = 'E', long, value_name = "N", default_value_t = crate::exit::TAKEN)]
    pub(crate) conflict_exit_code: u8,
    /// How this holder is shown to others; user@host by default, with the PID of --while-pid
    #[arg(long, value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    /// Print no message when the lock is not acquired
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print each step of the wait; -vv and -vvv also print the library's log
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// What to lock: 1 to 512 bytes, no control characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// The default ttl of a hold that a process renews, as that of `run`.
const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// The default ttl of a hold that no process renews: `acquire` and the next step may be some time apart.
const FIXED_TTL: Duration = Duration::from_secs(600);

impl Acquire {
    /// The lease time: a hold that no process renews lasts longer by default.
    pub(crate) fn lease_time(&self) -> Duration {
        let default = if self.while_pid.is_some() { DEFAULT_TTL } else { FIXED_TTL };
        self.ttl.unwrap_or(default)
    }

    /// The same options as those of `run`.
    pub(crate) fn hold_options(&self) -> HoldOptions {
        HoldOptions {
            wait: self.wait,
            nonblock: self.nonblock,
            retry_every: None,
            when_unreachable: None,
            ttl: self.lease_time(),
            renew_every: None,
            max_hold: self.max_hold,
            grace: Duration::ZERO,
            conflict_exit_code: self.conflict_exit_code,
            owner: self.owner.clone(),
            quiet: self.quiet,
            verbose: self.verbose,
            pass_url: false,
            close: false,
            report: None,
            metrics_file: None,
            on_lost: None,
            shell: None,
        }
    }
}

// What the commands on a handle share. A doc comment would become the text of these commands.
#[derive(Debug, clap::Args)]
pub(crate) struct HandleOptions {
    /// The handle that `acquire` printed
    #[arg(value_name = "HANDLE", required_unless_present = "handle_file")]
    pub(crate) handle: Option<String>,
    /// The file that `acquire --handle-file` wrote
    #[arg(long, value_name = "PATH", conflicts_with = "handle")]
    pub(crate) handle_file: Option<PathBuf>,
    /// Print no message when the hold is over (76)
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) handle: HandleOptions,
    /// How long the hold is to last from now on, at least; the ttl of `acquire` by default
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) handle: HandleOptions,
    /// Print the token of the hold, for a fence
    #[arg(long)]
    pub(crate) token: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) handle: HandleOptions,
}
