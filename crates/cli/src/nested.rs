//! A run inside a run: an ancestor of this process may be a run that holds the same name already.

use std::time::Duration;

use leasehold::{Guard, Locks, MAX_NAMES_AT_ONCE, Mode, Name, Previous};

use crate::{
    actor,
    args::Nested,
    cmd::run::wait_failure,
    event_loop::{EventLoop, now},
    exit::{self, Failure},
    holds::Holds,
    json,
    plan::{Purpose, Run, Wait, WantedMode},
    signals::interrupts_wait,
};

/// The time limit of the request for the holders of the name. It checks whether this process runs under one of them.
const SHOW_LIMIT: Duration = Duration::from_secs(5);
/// The variables that describe the hold to CMD: its name, its claim, its token, and the lineage of the token.
pub(crate) const NAME: &str = "LEASEHOLD_NAME";
const CLAIM: &str = "LEASEHOLD_CLAIM";
pub(crate) const TOKEN: &str = "LEASEHOLD_TOKEN";
pub(crate) const LINEAGE: &str = "LEASEHOLD_LINEAGE";
/// The variable that describes the holds of the runs outside of this one. It has one line for each hold, the nearest
/// run first. The name is last in a line, because it may contain spaces.
const OUTER: &str = "LEASEHOLD_OUTER";
/// The variable that describes all holds of a run of several names to CMD, as a JSON array.
pub(crate) const HOLDS: &str = "LEASEHOLD_HOLDS";
/// The variable that tells CMD of `once` how the run before it ended.
pub(crate) const PREVIOUS: &str = "LEASEHOLD_PREVIOUS";
/// The number of fields of a line of [`OUTER`].
const LINE_FIELDS: usize = 4;
/// The largest number of outer holds that are passed on to CMD: all holds of the largest run, and some of the runs
/// outside of it. The system limits one variable to 128 KiB; with the longest names, these lines have 115 KiB at most.
const MAX_OUTER: usize = MAX_NAMES_AT_ONCE + 64;

/// A hold under which a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) name: String,
    pub(crate) claim: String,
    token: String,
    lineage: String,
}

impl Hold {
    fn of(guard: &Guard) -> Self {
        let (name, token) = (guard.name(), guard.token());
        Self {
            name: name.as_str().to_owned(),
            claim: guard.id().to_string(),
            token: token.to_string(),
            lineage: token.lineage.to_string(),
        }
    }

    /// The holds of the runs that this process descends from, the nearest first, read from the environment.
    pub(crate) fn of_outer_runs() -> Vec<Self> {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let [name, claim, token, lineage] = [NAME, CLAIM, TOKEN, LINEAGE].map(variable);
        let nearest = Self { name, claim, token, lineage };
        let outer = variable(OUTER);
        let all = std::iter::once(nearest).chain(outer.lines().filter_map(Self::parse));
        all.filter(|hold| !hold.name.is_empty() && !hold.claim.is_empty()).collect()
    }

    /// Parses a line of [`OUTER`].
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(LINE_FIELDS, ' ').map(str::to_owned);
        Some(Self { claim: words.next()?, token: words.next()?, lineage: words.next()?, name: words.next()? })
    }

    /// The hold as a line of [`OUTER`].
    fn line(&self) -> String {
        format!("{} {} {} {}", self.claim, self.token, self.lineage, self.name)
    }

    /// The environment variables for a CMD that runs under these holds.
    pub(crate) fn variables_of(plan: &Run, holds: Holds<'_>) -> Vec<(&'static str, String)> {
        let is_own = |guard: &&Guard| *guard.name() == plan.name;
        let (own, others): (Vec<_>, Vec<_>) = holds.iter().partition(is_own);
        let Some(own) = own.first() else { return Vec::new() };
        let all = (!others.is_empty()).then(|| (HOLDS, json::holds(holds)));
        let is_once = matches!(plan.purpose, Purpose::Once { .. });
        let previous = is_once.then(|| (PREVIOUS, previous_word(own.previous()).to_owned()));
        let others = others.into_iter().map(Self::of).collect();
        let actor = (actor::VARIABLE, plan.actor.to_string());
        let variables = Self::of(own).variables_with(others).into_iter();
        variables.chain(all).chain(previous).chain([actor]).collect()
    }

    /// The environment variables for a CMD that runs under this hold.
    pub(crate) fn variables(self) -> Vec<(&'static str, String)> {
        self.variables_with(Vec::new())
    }

    /// As [`variables`](Self::variables), for a run that has these other holds too.
    fn variables_with(self, others: Vec<Self>) -> Vec<(&'static str, String)> {
        let outer_runs = Self::of_outer_runs().into_iter().filter(|hold| hold.claim != self.claim);
        let outer = others.into_iter().chain(outer_runs);
        let outer: Vec<_> = outer.take(MAX_OUTER).map(|hold| hold.line()).collect();
        let own = [(NAME, self.name), (CLAIM, self.claim), (TOKEN, self.token), (LINEAGE, self.lineage)];
        let all = own.into_iter().chain([(OUTER, outer.join("\n"))]);
        all.filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// How the hold before this one ended, for [`PREVIOUS`].
const fn previous_word(previous: Previous) -> &'static str {
    match previous {
        Previous::Clean => "clean",
        Previous::Abandoned => "abandoned",
        Previous::Lapsed => "lapsed",
        Previous::Broken => "broken",
        // Also a way of ending that this command does not know.
        _ => "unknown",
    }
}

/// The hold of an outer run under which CMD is to run. `None`: the run has to acquire a hold of its own.
///
/// With `--nested ok` it is the hold of an outer run on the same name. Without that option, such an outer hold is an
/// error if it excludes a new hold of this run, because the wait for the new hold would never end. `deadline` is the
/// time at which the wait for the lock has to end.
pub(crate) fn nested(
    plan: &Run,
    locks: &Locks,
    event_loop: &EventLoop,
    deadline: Option<Duration>,
) -> Result<Option<Hold>, Failure> {
    for name in plan.names() {
        if let Some(hold) = nested_in(plan, name, locks, event_loop, deadline)? {
            return Ok(Some(hold));
        }
    }
    Ok(None)
}

/// As [`nested`], for one of the names.
fn nested_in(
    plan: &Run,
    name: &Name,
    locks: &Locks,
    event_loop: &EventLoop,
    deadline: Option<Duration>,
) -> Result<Option<Hold>, Failure> {
    let outer_holds: Vec<_> =
        Hold::of_outer_runs().into_iter().filter(|hold| hold.name == name.as_str()).collect();
    if outer_holds.is_empty() || (plan.nested == Nested::Fail && plan.wait == Wait::Not) {
        return Ok(None);
    }
    // An outer hold with the same name may be on another engine or under another prefix. So its claim is compared with
    // the claims of the present holders. If this user has no permission to look at locks, the run waits as usual.
    let limit = deadline.map_or(SHOW_LIMIT, |deadline| SHOW_LIMIT.min(deadline.saturating_sub(now()) / 2));
    let shown = event_loop.block_on(locks.show(name.as_str()), Some(limit), interrupts_wait);
    let Some(Ok(view)) = shown.map_err(wait_failure)? else { return Ok(None) };
    let wants_exclusive = match plan.others.iter().find(|(other, _)| other == name) {
        Some((_, mode)) => {
            *mode == WantedMode::Exclusive || (*name == plan.name && plan.mode == WantedMode::Exclusive)
        }
        None => plan.mode == WantedMode::Exclusive,
    };
    let is_exclusive = view.mode == Some(Mode::Exclusive) || wants_exclusive;
    let is_held = |hold: &Hold| view.holders.iter().any(|holder| holder.id == hold.claim);
    match (plan.nested, outer_holds.into_iter().find(is_held)) {
        (Nested::Ok, outer_hold) => Ok(outer_hold),
        (Nested::Fail, Some(_)) if is_exclusive => {
            let lock = format!("{} lock {:?}", locks.profile().engine, name.as_str());
            let way_out = match plan.purpose {
                Purpose::Run => format!("use --nested ok to run {} under that hold", plan.program.display()),
                Purpose::Acquire | Purpose::Elect { .. } | Purpose::Once { .. } => {
                    "use another name".to_owned()
                }
            };
            Err(Failure::new(
                exit::USAGE,
                format!(
                    "{lock}: already held by an outer `leasehold run` (according to the environment): \
                     waiting would never end: {way_out}"
                ),
            ))
        }
        (Nested::Fail, _) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_parsed_from_its_environment_line() {
        let hold = Hold {
            name: "a name: of words".to_owned(),
            claim: "07".to_owned(),
            token: "11".to_owned(),
            lineage: "0a".to_owned(),
        };
        assert_eq!(Hold::parse(&hold.line()), Some(hold));
        assert_eq!(Hold::parse("07 11 0a"), None);
    }

    #[test]
    fn cmd_gets_every_hold_of_the_largest_run() {
        let hold = |number: usize| Hold {
            name: format!("{number:0>512}"),
            claim: format!("{number:032x}"),
            token: u64::MAX.to_string(),
            lineage: "f".repeat(32),
        };
        let others: Vec<_> = (1..MAX_NAMES_AT_ONCE).map(hold).collect();
        let variables = hold(0).variables_with(others.clone());
        let outer = &variables.iter().find(|(variable, _)| *variable == OUTER).unwrap().1;
        let passed_on: Vec<_> = outer.lines().filter_map(Hold::parse).take(others.len()).collect();
        assert_eq!(passed_on, others);
        let longest = hold(0).line().len() + 1;
        assert!(MAX_OUTER * longest < 128 * 1024, "the system limits a variable");
    }
}
