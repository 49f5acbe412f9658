//! The resolved command line: all settings, with their defaults.

mod acquire;
mod url;

use std::{ffi::OsString, io, path::Path, time::Duration};

use leasehold::{Actor, Name, Owner, Pace};
use leasehold_ops::Reached;
use zeroize::Zeroizing;

pub(crate) use acquire::Acquire;
pub(crate) use url::{given, only, url, urls};

use crate::{
    actor, args,
    course::Course,
    engines,
    exit::{Failure, USAGE},
    holds::Holds,
    metrics_file::MetricsFile,
    report::{Report, Target},
    source::Given,
    text::print_message,
};

/// The longest `--at-least`. It is longer than the period of any schedule, and bounds the effect of a typing error.
const MAX_AT_LEAST: Duration = Duration::from_secs(366 * 24 * 3600);

/// The plan of `leasehold run`, `elect` or `once`.
pub(crate) struct Run {
    /// The URL. It may contain a password, and stays in memory as long as CMD runs.
    pub(crate) url: Zeroizing<String>,
    /// How the reader of an advice reaches the engine.
    pub(crate) reached: Reached,
    pub(crate) name: Name,
    pub(crate) purpose: Purpose,
    pub(crate) mode: WantedMode,
    /// The names that the run holds besides, each exclusive or shared.
    pub(crate) others: Vec<(Name, WantedMode)>,
    pub(crate) wait: Wait,
    /// The number of tries, for a run that does not wait in the queue.
    pub(crate) attempts: Option<u32>,
    pub(crate) pace: Option<Pace>,
    /// How many others may wait for the name when this run begins to wait.
    pub(crate) max_waiting: Option<usize>,
    /// What to do during an outage of the engine; `None`: what the URL says.
    pub(crate) when_unreachable: Option<args::WhenUnreachable>,
    pub(crate) ttl: Duration,
    pub(crate) renew: bool,
    pub(crate) renew_every: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) grace: Duration,
    /// The exit code if the lock is not acquired.
    pub(crate) not_acquired_code: u8,
    pub(crate) nested: args::Nested,
    pub(crate) owner: Option<Owner>,
    /// The task of this run, which the labels of its claims tell.
    pub(crate) actor: Actor,
    pub(crate) quiet: bool,
    /// How often `-v` was given.
    pub(crate) verbose: u8,
    /// Whether CMD's environment keeps the variables with the engine's URL.
    pub(crate) pass_url: bool,
    /// Whether CMD inherits the descriptor of the lock file, if there is one.
    pub(crate) pass_descriptor: bool,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// The line of JSON that is to be written at the end.
    pub(crate) report: Option<Report>,
    /// The file with series about the runs of the name.
    pub(crate) metrics: Option<MetricsFile>,
    /// How far the run is.
    pub(crate) course: Course,
    /// The text for the shell that runs when the hold is lost.
    pub(crate) on_lost: Option<OsString>,
}

/// Which of the commands this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// `run`: CMD runs under the lock.
    Run,
    /// `acquire`: no CMD is run.
    Acquire,
    /// `elect`: CMD runs while this process leads, and others find this value.
    Elect { value: Option<String> },
    /// `once`: CMD runs unless a run of the same key has succeeded within this time.
    Once {
        keep: Duration,
        /// Whether the standard output of CMD is the result that is stored.
        shows_result: bool,
    },
}

/// The mode in which the name is to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WantedMode {
    Exclusive,
    Shared,
    Permits { count: u32, limit: u32 },
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Forever,
    Within(Duration),
    Not,
}

impl Run {
    /// The engine and the name, for messages of a process that has made no `Locks`.
    pub(crate) fn lock_label(&self) -> String {
        self.label(engines::name_of(&self.url))
    }

    /// The engine and the names, for messages.
    pub(crate) fn label(&self, engine: &str) -> String {
        let others: Vec<_> = self.others.iter().map(|(name, _)| format!(", {:?}", name.as_str())).collect();
        let word = if others.is_empty() { "lock" } else { "locks" };
        format!("{engine} {word} {:?}{}", self.name.as_str(), others.concat())
    }

    /// All names that the run holds.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        std::iter::once(&self.name).chain(self.others.iter().map(|(name, _)| name))
    }

    /// Writes to the metrics file, if there is one, that the run begins.
    ///
    /// # Errors
    /// The file cannot be written, so the run must not begin.
    pub(crate) fn begin_metrics(&self) -> Result<(), Failure> {
        let Some(metrics) = &self.metrics else { return Ok(()) };
        metrics.begin(self).map_err(|error| metrics_failure(metrics.path(), &error))
    }

    /// Records for the report and the metrics file that the names were granted.
    pub(crate) fn granted(&self, holds: Holds<'_>) {
        self.course.granted();
        self.report.iter().for_each(|report| report.granted(self, holds));
        let is_written = self.tell_metrics(|metrics| metrics.granted(self));
        self.course.set_grant_written(is_written.unwrap_or(true));
    }

    /// CMD has started: records the grant for the metrics file if this was not possible before without a wait.
    pub(crate) fn started(&self) {
        if !self.course.is_grant_written() {
            self.tell_metrics(|metrics| metrics.started(self));
        }
    }

    /// Writes to the metrics file, if there is one. That it cannot be written changes nothing about the run. `None`:
    /// it was not written, or there is none.
    fn tell_metrics<T>(&self, write: impl FnOnce(&MetricsFile) -> io::Result<T>) -> Option<T> {
        match write(self.metrics.as_ref()?) {
            Ok(done) => Some(done),
            Err(error) => {
                let lock = self.lock_label();
                print_message(&format!("{lock}: the metrics file cannot be written: {error}"));
                None
            }
        }
    }

    /// Writes the report and the metrics of the run, if they are wanted, and returns the result of the run.
    pub(crate) fn reported(&self, result: Result<u8, Failure>) -> Result<u8, Failure> {
        self.tell_metrics(|metrics| metrics.end(self, &result));
        if let Some(report) = &self.report
            && let Err(error) = report.write(self, engines::name_of(&self.url), &result)
        {
            print_message(&format!("{}: the report cannot be written: {error}", self.lock_label()));
        }
        result
    }

    /// Resolves the options of `run`. Checks the arguments before it calls `given`, which returns the URL.
    pub(crate) fn new(
        args: args::Run,
        given: impl FnOnce() -> Result<Given, Failure>,
    ) -> Result<Self, Failure> {
        let name = match (args.stripes, &args.key) {
            (Some(stripes), Some(key)) => Name::new(&leasehold::stripe_name(&args.name, stripes, key)?)?,
            _ => Name::new(&args.name)?,
        };
        let mode = wanted_mode(args.shared, args.permits, args.limit)?;
        let others = other_names(&args)?;
        if args.at_least.is_some_and(|time| time > MAX_AT_LEAST) {
            return Err(Failure::new(USAGE, "--at-least is out of range: at most 366d are allowed"));
        }
        if args.hold.report.is_some() && args.nested == args::Nested::Ok {
            let message =
                "--report needs --nested fail: with --nested ok leasehold may become CMD, and cannot report";
            return Err(Failure::new(USAGE, message));
        }
        if args.hold.metrics_file.is_some() && args.nested == args::Nested::Ok {
            let message = "--metrics-file needs --nested fail: with --nested ok leasehold may become CMD, and writes no series";
            return Err(Failure::new(USAGE, message));
        }
        let plan = Self::with_defaults(name, Purpose::Run, args.hold, args.command)?;
        if plan.wait == Wait::Not && (args.attempts.is_some() || args.max_waiting.is_some()) {
            return Err(only_for_waiting());
        }
        if args.max_waiting == Some(0) {
            return Err(Failure::new(USAGE, "--max-waiting 0: use --nonblock for a run that does not wait"));
        }
        Ok(Self {
            mode,
            others,
            attempts: args.attempts,
            max_waiting: args.max_waiting,
            renew: !args.no_renew,
            at_least: args.at_least,
            nested: args.nested,
            ..plan.at(given()?)
        })
    }

    /// Resolves the options of `elect`, as [`new`](Self::new) does.
    pub(crate) fn of_elect(
        args: args::Elect,
        given: impl FnOnce() -> Result<Given, Failure>,
    ) -> Result<Self, Failure> {
        let purpose = Purpose::Elect { value: args.value };
        let plan = Self::with_defaults(Name::new(&args.name)?, purpose, args.hold, args.command)?;
        Ok(plan.at(given()?))
    }

    /// Resolves the options of `once`, as [`new`](Self::new) does.
    pub(crate) fn of_once(
        args: args::Once,
        given: impl FnOnce() -> Result<Given, Failure>,
    ) -> Result<Self, Failure> {
        let purpose = Purpose::Once { keep: args.keep, shows_result: args.show_result };
        let plan = Self::with_defaults(Name::new(&args.key)?, purpose, args.hold, args.command)?;
        Ok(plan.at(given()?))
    }

    /// The same plan, at this URL.
    pub(crate) fn at(self, given: Given) -> Self {
        let reached = given.reached(engines::name_of(&given.url));
        Self { reached, url: given.url.into(), ..self }
    }

    /// A plan without a URL, with the options that all commands share and the defaults of all other options.
    fn with_defaults(
        name: Name,
        purpose: Purpose,
        hold: args::HoldOptions,
        command: Vec<OsString>,
    ) -> Result<Self, Failure> {
        let wait = match hold.wait {
            _ if hold.nonblock => Wait::Not,
            None => Wait::Forever,
            Some(Duration::ZERO) => Wait::Not,
            Some(limit) => Wait::Within(limit),
        };
        if let (Some(pace), Wait::Within(limit)) = (hold.retry_every, wait)
            && pace.first() > limit
        {
            return Err(Failure::new(
                USAGE,
                "--retry-every is longer than --wait: the run would ask only once",
            ));
        }
        if wait == Wait::Not && hold.retry_every.is_some() {
            return Err(only_for_waiting());
        }
        let command = match hold.shell {
            Some(text) => vec!["sh".into(), "-c".into(), text],
            None => command,
        };
        let mut command = command.into_iter();
        let Some(program) = command.next() else {
            return Err(Failure::new(USAGE, "no CMD is given after --"));
        };
        Ok(Self {
            name,
            purpose,
            mode: WantedMode::Exclusive,
            others: Vec::new(),
            wait,
            attempts: None,
            pace: hold.retry_every,
            max_waiting: None,
            when_unreachable: hold.when_unreachable,
            ttl: hold.ttl,
            renew: true,
            renew_every: hold.renew_every,
            max_hold: hold.max_hold,
            at_least: None,
            grace: hold.grace,
            not_acquired_code: hold.conflict_exit_code,
            nested: args::Nested::Fail,
            owner: hold.owner.as_deref().map(str::parse::<Owner>).transpose()?,
            actor: actor::of_new_run(),
            quiet: hold.quiet,
            verbose: hold.verbose,
            pass_url: hold.pass_url,
            pass_descriptor: !hold.close,
            program,
            arguments: command.collect(),
            report: hold.report.as_ref().map(open_report).transpose()?,
            metrics: hold.metrics_file.as_deref().map(metrics_file).transpose()?,
            course: Course::begin(),
            on_lost: hold.on_lost,
            url: String::new().into(),
            reached: Reached::AsHere,
        })
    }
}

/// The file of `--metrics-file`.
fn metrics_file(path: &Path) -> Result<MetricsFile, Failure> {
    MetricsFile::new(path).map_err(|error| metrics_failure(path, &error))
}

/// The failure if `--metrics-file` cannot be written.
fn metrics_failure(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::new(USAGE, format!("--metrics-file {path}: {error}: check the path and its permissions"))
}

/// Opens the target of `--report`.
fn open_report(target: &Target) -> Result<Report, Failure> {
    Report::open(target).map_err(|error| {
        let what = match target {
            Target::Path(path) => format!("{}: {error}: check the path and its permissions", path.display()),
            Target::Descriptor(number) => format!("fd:{number}: {error}: is it open for writing?"),
        };
        Failure::new(USAGE, format!("--report {what}"))
    })
}

/// The failure if an option about waiting is given to a run that does not wait.
fn only_for_waiting() -> Failure {
    let message = "--attempts, --retry-every and --max-waiting are for runs that wait, without -n and -w 0";
    Failure::new(USAGE, message)
}

/// The names of `--and` and `--and-shared`.
fn other_names(args: &args::Run) -> Result<Vec<(Name, WantedMode)>, Failure> {
    let exclusive = args.and.iter().map(|name| (name, WantedMode::Exclusive));
    let shared = args.and_shared.iter().map(|name| (name, WantedMode::Shared));
    let others = exclusive.chain(shared).map(|(name, mode)| Ok((Name::new(name)?, mode)));
    let others: Vec<_> = others.collect::<Result<_, Failure>>()?;
    if !others.is_empty() && args.nested == args::Nested::Ok {
        return Err(Failure::new(
            USAGE,
            "--nested ok is for a run of one name, without --and and --and-shared",
        ));
    }
    Ok(others)
}

/// The mode that the options ask for.
fn wanted_mode(shared: bool, permits: Option<u32>, limit: Option<u32>) -> Result<WantedMode, Failure> {
    let Some(limit) = limit else {
        return Ok(if shared { WantedMode::Shared } else { WantedMode::Exclusive });
    };
    let count = permits.unwrap_or(1);
    if count == 0 || count > limit {
        return Err(Failure::new(
            USAGE,
            format!("--permits {count} --limit {limit}: the count must be from 1 to the limit"),
        ));
    }
    Ok(WantedMode::Permits { count, limit })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::source::Origin;

    fn plan(line: &str) -> Result<Run, Failure> {
        let args = args::Args::try_parse_from(line.split(' ')).map_err(|_| Failure::silent(USAGE))?;
        let url = || Ok(Given { url: "redis://:hunter2@h".into(), origin: Origin::Flag });
        match args.command {
            args::Command::Run(run) => Run::new(*run, url),
            args::Command::Elect(elect) => Run::of_elect(*elect, url),
            args::Command::Once(once) => Run::of_once(*once, url),
            _ => panic!("{line} runs no CMD"),
        }
    }

    #[test]
    fn the_defaults_match_the_manual() {
        let plan = plan("leasehold run x -- true -n").unwrap();
        assert_eq!((plan.mode, plan.wait), (WantedMode::Exclusive, Wait::Forever));
        assert_eq!((plan.ttl, plan.grace), (Duration::from_secs(30), Duration::from_secs(5)));
        assert!(plan.renew && plan.pass_descriptor && !plan.quiet && plan.owner.is_none());
        assert!(plan.max_hold.is_none() && plan.at_least.is_none());
        assert_eq!((plan.not_acquired_code, plan.arguments), (75, vec!["-n".into()]));
    }

    #[test]
    fn a_key_names_the_stripe_that_the_library_locks() {
        let name = |line| plan(line).map(|plan| plan.name.as_str().to_owned());
        assert_eq!(name("leasehold run --stripes 1024 --key 17 account -- true").unwrap(), "account~1024/2");
        assert_eq!(
            name("leasehold run --key alice --stripes 1024 account -- true").unwrap(),
            "account~1024/495"
        );
        for line in ["--stripes 8", "--key 17", "--stripes 0 --key 17", "--stripes x --key 17"] {
            assert!(plan(&format!("leasehold run {line} account -- true")).is_err(), "{line}");
        }
    }

    #[test]
    fn elect_and_once_have_the_options_and_defaults_of_run() {
        let elect = plan("leasehold elect -w 10s --ttl 9s --value -a x -- true").unwrap();
        assert_eq!(elect.purpose, Purpose::Elect { value: Some("-a".into()) });
        assert_eq!((elect.wait, elect.ttl), (Wait::Within(Duration::from_secs(10)), Duration::from_secs(9)));
        let once = plan("leasehold once --for 1d --grace 3s -o x -- true").unwrap();
        assert_eq!(once.purpose, Purpose::Once { keep: Duration::from_secs(86_400), shows_result: false });
        assert!(once.grace == Duration::from_secs(3) && !once.pass_descriptor);
        for plan in [elect, once] {
            assert_eq!(
                (plan.mode, plan.nested, plan.url.as_str()),
                (WantedMode::Exclusive, args::Nested::Fail, "redis://:hunter2@h")
            );
            assert!(plan.renew && plan.at_least.is_none() && plan.others.is_empty());
            assert_eq!(plan.reached, Reached::UrlWithoutPassword("redis://h".into()));
        }
    }

    #[test]
    fn options_are_resolved() {
        let wait = |line| plan(line).unwrap().wait;
        assert_eq!(wait("leasehold run -n x -- true"), Wait::Not);
        assert_eq!(wait("leasehold run -w 0s x -- true"), Wait::Not);
        assert_eq!(wait("leasehold run --wait 1h30m x -- true"), Wait::Within(Duration::from_secs(5400)));
        let mode = |line| plan(line).unwrap().mode;
        assert_eq!(mode("leasehold run -s x -- true"), WantedMode::Shared);
        assert_eq!(mode("leasehold run --limit 3 x -- true"), WantedMode::Permits { count: 1, limit: 3 });
        assert_eq!(
            mode("leasehold run --permits 2 --limit 3 x -- true"),
            WantedMode::Permits { count: 2, limit: 3 }
        );
    }

    #[test]
    fn wrong_arguments_are_refused_with_64() {
        let long = format!("leasehold run {} -- true", "n".repeat(513));
        let owner = format!("leasehold run --owner {} x -- true", "o".repeat(129));
        for line in [
            "leasehold run -n -w 1s x -- true",
            "leasehold run x",
            "leasehold run x true",
            "leasehold run x -c",
            "leasehold run x -c true -- true",
            "leasehold run --report fd:x x -- true",
            "leasehold run --report /no/such/directory x -- true",
            "leasehold run --permits 1 x -- true",
            "leasehold run --permits 4 --limit 3 x -- true",
            "leasehold run --limit 0 x -- true",
            "leasehold run -s --limit 3 x -- true",
            "leasehold run -s --permits 1 --limit 3 x -- true",
            "leasehold run -w 10 x -- true",
            "leasehold run -q -v x -- true",
            "leasehold run -E 256 x -- true",
            "leasehold run --at-least 367d x -- true",
            "leasehold elect x",
            "leasehold elect --at-least 1s x -- true",
            "leasehold elect -n --retry-every 1s x -- true",
            "leasehold once x -- true",
            "leasehold once --for 1d --shared x -- true",
            "leasehold once --for 1d -w 1s --retry-every 2s x -- true",
            &long,
            &owner,
        ] {
            let Err(failure) = plan(line) else { panic!("{line} was taken") };
            assert_eq!(failure.code, USAGE, "{line}");
        }
    }
}
