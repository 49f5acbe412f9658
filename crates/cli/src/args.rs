//! The command line as it is typed, declared for clap. Doc comments of options are the texts of `--help`.

mod steps;

#[cfg(feature = "serve")]
use std::net::{IpAddr, SocketAddr};
use std::{ffi::OsString, path::PathBuf, str::FromStr, time::Duration};

use clap::{Parser, Subcommand, ValueEnum};
use leasehold::Pace;

pub(crate) use self::steps::{Acquire, Check, HandleOptions, Release, Renew};
use crate::{help, report::Target};

/// Runs commands under locks that other processes and machines respect, and shows who holds what.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, subcommand_required = true, arg_required_else_help = false)]
pub(crate) struct Args {
    /// The engine that stores the locks: file:, file:///dir, redis://host, redis+sentinel://h1,h2/NAME, etcd://host,
    /// postgres://host/db, ...
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) url: Vec<String>,
    /// Fail (78) when no URL is given, instead of using file:
    #[arg(long, global = true)]
    pub(crate) require_url: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command under a lock
    #[command(after_help = help::RUN)]
    Run(Box<Run>),
    /// Run a command as the leader of an election
    #[command(after_help = help::ELECT)]
    Elect(Box<Elect>),
    /// Print who leads an election
    #[command(after_help = help::LEADER)]
    Leader(Leader),
    /// Run a command one time for a key, however often and wherever it is started
    #[command(after_help = help::ONCE)]
    Once(Box<Once>),
    /// Acquire a lock that outlasts this command, and print a handle for renew, check and release
    #[command(after_help = help::ACQUIRE)]
    Acquire(Box<Acquire>),
    /// Extend the hold of a handle
    Renew(Renew),
    /// Exit with 0 if the hold of a handle is held, and with 76 if it is over
    Check(Check),
    /// End the hold of a handle
    Release(Release),
    /// List the names that are held or waited for
    List(List),
    /// Show who holds a name and who waits for it
    Show(Show),
    /// End a hold of another process
    #[command(after_help = help::BREAK)]
    Break(Break),
    /// Examine the engine: what it can promise, what is wrong, what to do
    #[command(after_help = help::DOCTOR)]
    Doctor(Doctor),
    /// Serve a page for operators: who holds what, who waits, what happened, and a way to end a hold
    #[cfg(feature = "serve")]
    #[command(after_help = help::SERVE)]
    Serve(Box<Serve>),
    /// Print a line for each change of the holders and waiters
    #[command(after_help = help::WATCH)]
    Watch(Watch),
    /// Show the holders and waiters on the terminal, live
    #[cfg(feature = "top")]
    #[command(after_help = help::TOP)]
    Top(Top),
    /// Print the SQL that creates the tables of a postgres, mysql or sqlite URL
    Schema,
    /// Print completions for a shell
    Completions(Completions),
}

// The options of every command that runs CMD under a lock. A doc comment would become the text of these commands.
#[derive(Debug, clap::Args)]
pub(crate) struct HoldOptions {
    /// How long to wait for the lock; without a limit by default
    #[arg(short, long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// The longest pause before a waiting command asks the engine again: fixed, or doubling, as in 100ms..2s
    #[arg(long, value_name = "PAUSE[..LONGEST]", value_parser = pace, allow_hyphen_values = true)]
    pub(crate) retry_every: Option<Pace>,
    /// What to do while the engine cannot be reached; `wait` by default
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) when_unreachable: Option<WhenUnreachable>,
    /// How long a lease lasts without a renewal
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, default_value = "30s")]
    pub(crate) ttl: Duration,
    /// How often to renew the lease: from a twentieth of the ttl (or 20s) to half of it; by default a third, or 20s
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) renew_every: Option<Duration>,
    /// End CMD, and the hold, after this time at the latest
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) max_hold: Option<Duration>,
    /// The time between TERM and KILL when the lock is lost
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, default_value = "5s")]
    pub(crate) grace: Duration,
    /// Exit with N instead of 75 when the lock is not acquired
    #[arg(short = 'E', long, value_name = "N", default_value_t = crate::exit::TAKEN)]
    pub(crate) conflict_exit_code: u8,
    /// How this holder is shown to others; user@host:pid by default
    #[arg(long, value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    /// Print no message when the lock is not acquired
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print each step; -vv and -vvv also print the library's log
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Leave LEASEHOLD_URL and LEASEHOLD_URL_FILE in the environment of CMD
    #[arg(long)]
    pub(crate) pass_url: bool,
    /// File engine: do not pass the lock's descriptor to CMD
    #[arg(short = 'o', long)]
    pub(crate) close: bool,
    /// At the end write one line of JSON: to this file, or as fd:N to the open descriptor N
    #[arg(long, value_name = "PATH|fd:N", value_parser = Target::from_str, allow_hyphen_values = true)]
    pub(crate) report: Option<Target>,
    /// Write series about the runs of NAME to this file, PATH.prom, for the node exporter of Prometheus
    #[arg(long, value_name = "PATH")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// When the lock is lost, run this text by /bin/sh -c, once, for ten seconds at most
    #[arg(long, value_name = "STRING", allow_hyphen_values = true)]
    pub(crate) on_lost: Option<OsString>,
    /// Run this text by `sh -c`, in place of CMD
    #[arg(short = 'c', long = "command", value_name = "STRING", allow_hyphen_values = true)]
    pub(crate) shell: Option<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) hold: HoldOptions,
    /// Try at most N times instead of waiting in the queue
    #[arg(long, value_name = "N")]
    pub(crate) attempts: Option<u32>,
    /// Exit (75) at once if N clients wait already for NAME, or for one of the names of --and
    #[arg(long, value_name = "N")]
    pub(crate) max_waiting: Option<usize>,
    /// Do not renew the lease: it ends after its ttl
    #[arg(long, conflicts_with = "renew_every")]
    pub(crate) no_renew: bool,
    /// Take the lock in shared mode: only exclusive holders are excluded
    #[arg(short, long, conflicts_with_all = ["permits", "limit"])]
    pub(crate) shared: bool,
    /// Take COUNT of the permits that --limit allows; 1 by default
    #[arg(long, value_name = "COUNT", requires = "limit")]
    pub(crate) permits: Option<u32>,
    /// The total number of permits, the same for all users of NAME
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u32>,
    /// Lock one of N names instead of NAME: the stripe of NAME to which --key belongs. The same N for all users of NAME
    #[arg(long, value_name = "N", requires = "key")]
    pub(crate) stripes: Option<u32>,
    /// The key, any text, whose stripe to lock
    #[arg(long, value_name = "KEY", requires = "stripes", allow_hyphen_values = true)]
    pub(crate) key: Option<String>,
    /// Hold this name too, exclusively: all names or none. May be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) and: Vec<String>,
    /// Hold this name too, in shared mode. May be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) and_shared: Vec<String>,
    /// If CMD exits 0, NAME stays taken until this time after the grant
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) at_least: Option<Duration>,
    /// What to do when an outer run already holds NAME
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Nested::Fail)]
    pub(crate) nested: Nested,
    /// What to lock: 1 to 512 bytes, no control characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The command to run, and its arguments
    #[arg(value_name = "CMD", last = true, required_unless_present = "shell", conflicts_with = "shell", num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Elect {
    /// What others find while this process leads, for instance its address: 1 to 65536 bytes
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) value: Option<String>,
    #[command(flatten)]
    pub(crate) hold: HoldOptions,
    /// The election, a lock of this name: 1 to 512 bytes, no control characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The command to run, and its arguments
    #[arg(value_name = "CMD", last = true, required_unless_present = "shell", conflicts_with = "shell", num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Leader {
    /// Print a line for each change, until a signal or the end of the reader
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// The election
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Once {
    /// How long it is remembered that CMD ran: 1ms to 400d, from the end of CMD
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) keep: Duration,
    /// Store what CMD prints to standard output (up to 64 KiB), or print what an earlier run stored
    #[arg(long)]
    pub(crate) show_result: bool,
    #[command(flatten)]
    pub(crate) hold: HoldOptions,
    /// The key of the work, a lock of this name: 1 to 512 bytes, no control characters
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The command to run, and its arguments
    #[arg(value_name = "CMD", last = true, required_unless_present = "shell", conflicts_with = "shell", num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}

/// What `--nested` does about a name that an ancestor of this process holds already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Nested {
    /// Fail (64), because the wait would never end
    Fail,
    /// Run CMD under the hold of the outer run
    Ok,
}

/// What `--when-unreachable` does during an outage of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhenUnreachable {
    /// Wait until the engine answers, or until the limit of --wait
    Wait,
    /// Exit (69) as soon as the engine does not answer
    Fail,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// List only names that begin with this
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// The name to look at
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Break {
    /// The name whose hold is to end
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The token of the hold, as `leasehold show` prints it
    #[arg(long, value_name = "T")]
    pub(crate) token: u64,
    /// Do not wait until the holder's lease has ended: then only a fence protects the resource
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what became of the hold as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Why, for the audit file; needed if there is one
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// The file to which a line of JSON is added before and after the break; LEASEHOLD_AUDIT_FILE by default
    #[arg(long, value_name = "PATH")]
    pub(crate) audit_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// The ttl of your holds, which is compared with the time that requests take
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, default_value = "30s")]
    pub(crate) ttl: Duration,
    /// Lock this name for the test, where this user may not lock leasehold/doctor/...; nobody else may use it
    #[arg(long, value_name = "NAME")]
    pub(crate) scratch: Option<String>,
    /// Print one JSON object per URL
    #[arg(long)]
    pub(crate) json: bool,
}

// The paths and names of the page for operators.
#[cfg(feature = "serve")]
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The address to listen on; other machines are served only with --tls-cert and --view-tokens, or by a proxy
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8470")]
    pub(crate) listen: SocketAddr,
    /// Show this engine too, under LABEL: a URL, or @FILE with one. May be repeated
    #[arg(long, value_name = "LABEL=URL|LABEL=@FILE")]
    pub(crate) engine: Vec<String>,
    /// Break holds of the engine LABEL by another URL, that of a user with more rights. May be repeated
    #[arg(long, value_name = "LABEL=URL|LABEL=@FILE", requires = "allow_break")]
    pub(crate) break_engine: Vec<String>,
    /// A name of this server, as browsers ask for it, without a port. May be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// The certificate of the server, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate, a PEM file that only its owner can read
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The tokens of those who may read, one per line, each after the name of its user; a private file
    #[arg(long, value_name = "FILE")]
    pub(crate) view_tokens: Option<PathBuf>,
    /// The tokens of those who may break holds too
    #[arg(long, value_name = "FILE")]
    pub(crate) break_tokens: Option<PathBuf>,
    /// The header in which a proxy says who the user is
    #[arg(long, value_name = "HEADER", requires_all = ["proxy_peer", "proxy_secret"])]
    pub(crate) proxy_user_header: Option<String>,
    /// An address of the proxy. May be repeated
    #[arg(long, value_name = "IP", requires = "proxy_user_header")]
    pub(crate) proxy_peer: Vec<IpAddr>,
    /// The secret that the proxy sends in X-Leasehold-Proxy-Secret; a private file
    #[arg(long, value_name = "FILE", requires = "proxy_user_header")]
    pub(crate) proxy_secret: Option<PathBuf>,
    /// A user of the proxy who may break holds. May be repeated
    #[arg(long, value_name = "USER", requires = "proxy_user_header")]
    pub(crate) proxy_breaker: Vec<String>,
    /// Let those who may break end holds; each break is recorded in the file of --audit
    #[arg(long, requires = "audit")]
    pub(crate) allow_break: bool,
    /// The file to which a line of JSON is added before and after each break
    #[arg(long, value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
    /// Names that have series of their own in /metrics, such as 'deploy/*'. May be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) metrics_names: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    /// Watch the names that begin with this; all names by default
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Watch PREFIX as one name, and not the longer names that begin with it
    #[arg(short = 'x', long)]
    pub(crate) exact: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// The pause between two looks at the engine while it tells no change: 100ms to 1h
    #[arg(long, value_name = "DURATION", value_parser = look_pause, allow_hyphen_values = true, default_value = "1s")]
    pub(crate) every: Duration,
}

#[cfg(feature = "top")]
#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    /// Show the names that begin with this; all names by default
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// The pause between two looks at the engine while it tells no change: 100ms to 1h
    #[arg(long, value_name = "DURATION", value_parser = look_pause, allow_hyphen_values = true, default_value = "1s")]
    pub(crate) every: Duration,
    /// Never break a hold
    #[arg(long)]
    pub(crate) readonly: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

fn duration(text: &str) -> Result<Duration, leasehold::Error> {
    leasehold::parse_duration(text)
}

/// A pause (`100ms`), or the first and the longest of pauses that double (`100ms..2s`).
fn pace(text: &str) -> Result<Pace, leasehold::Error> {
    match text.split_once("..") {
        None => Ok(Pace::fixed(duration(text)?)),
        Some((first, longest)) => Ok(Pace::doubled(duration(first)?, duration(longest)?)),
    }
}

/// The pause between two looks at all names. Its lower bound protects the engine: a look reads every name.
fn look_pause(text: &str) -> Result<Duration, String> {
    let pause = duration(text).map_err(|error| error.to_string())?;
    match (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&pause) {
        true => Ok(pause),
        false => Err("the pause between two looks is 100ms to 1h".to_owned()),
    }
}
