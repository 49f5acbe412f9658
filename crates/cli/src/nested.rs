//! A run within a run: the name may be held by the very process that started this one, or by one above that.

use std::time::Duration;

use leasehold::{Guard, Locks, Mode, Name};

use crate::{
    args::Nested,
    cmd::run::{lock, waiting_failed},
    exit::{self, Failure},
    plan::{Run, Wait, Want},
    signals::ends_wait,
    waiter::{Waiter, now},
};

/// How long the look may take whether this process was started under the hold that it asks for.
const LOOK_WITHIN: Duration = Duration::from_secs(5);
/// What CMD is told of the hold.
const NAME: &str = "LEASEHOLD_NAME";
const CLAIM: &str = "LEASEHOLD_CLAIM";
const TOKEN: &str = "LEASEHOLD_TOKEN";
const LINEAGE: &str = "LEASEHOLD_LINEAGE";
/// What CMD is told of the holds of the runs above this one: a line each, the nearest first, the name last, for it may hold spaces.
const OUTER: &str = "LEASEHOLD_OUTER";
/// No more of them are told, for an environment has its limits.
const OUTER_AT_MOST: usize = 64;

/// A hold under which a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    name: String,
    pub(crate) claim: String,
    token: String,
    lineage: String,
}

impl Hold {
    pub(crate) fn of(name: &Name, guard: &Guard) -> Self {
        let token = guard.token();
        Self {
            name: name.as_str().to_owned(),
            claim: guard.id().to_string(),
            token: token.to_string(),
            lineage: token.lineage.to_string(),
        }
    }

    /// Those of the runs that this process descends from, the nearest first, as its environment tells.
    pub(crate) fn above() -> Vec<Self> {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let [name, claim, token, lineage] = [NAME, CLAIM, TOKEN, LINEAGE].map(variable);
        let nearest = Self { name, claim, token, lineage };
        let outer = variable(OUTER);
        let all = std::iter::once(nearest).chain(outer.lines().filter_map(Self::parse));
        all.filter(|hold| !hold.name.is_empty() && !hold.claim.is_empty()).collect()
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ').map(str::to_owned);
        Some(Self { claim: words.next()?, token: words.next()?, lineage: words.next()?, name: words.next()? })
    }

    fn line(&self) -> String {
        format!("{} {} {} {}", self.claim, self.token, self.lineage, self.name)
    }

    /// What is added to the environment of a CMD that runs under it.
    pub(crate) fn variables(self) -> Vec<(&'static str, String)> {
        let outer = Self::above().into_iter().filter(|hold| hold.claim != self.claim);
        let outer: Vec<_> = outer.take(OUTER_AT_MOST).map(|hold| hold.line()).collect();
        let own = [(NAME, self.name), (CLAIM, self.claim), (TOKEN, self.token), (LINEAGE, self.lineage)];
        let all = own.into_iter().chain([(OUTER, outer.join("\n"))]);
        all.filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// The hold that CMD is to run under: one of a process above this one, of the same name, which leaves no room for another. `until`
/// is when the wait for the lock is to end.
pub(crate) fn nested(
    plan: &Run,
    locks: &Locks,
    waiter: &Waiter,
    until: Option<Duration>,
) -> Result<Option<Hold>, Failure> {
    let above: Vec<_> = Hold::above().into_iter().filter(|hold| hold.name == plan.name.as_str()).collect();
    if above.is_empty() || (plan.nested == Nested::Fail && plan.wait == Wait::Not) {
        return Ok(None);
    }
    // Another engine or prefix may have the same name: only the hold itself tells. Who may not look waits.
    let within = until.map_or(LOOK_WITHIN, |until| LOOK_WITHIN.min(until.saturating_sub(now()) / 2));
    let seen = waiter.block_on(locks.show(plan.name.as_str()), Some(within), ends_wait);
    let Some(Ok(view)) = seen.map_err(waiting_failed)? else { return Ok(None) };
    let alone = view.mode == Some(Mode::Exclusive) || plan.want == Want::Exclusive;
    let is_held = |hold: &Hold| view.holders.iter().any(|holder| holder.id == hold.claim);
    match (plan.nested, above.into_iter().find(is_held)) {
        (Nested::Ok, ours) => Ok(ours),
        (Nested::Fail, Some(_)) if alone => {
            let lock = lock(plan, locks);
            Err(Failure::new(
                exit::USAGE,
                format!(
                    "{lock}: held already by a process that this one descends from (its environment says so): waiting would never \
                     end: say --nested ok to run {} under that hold",
                    plan.program.display()
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
    fn a_hold_survives_the_way_through_the_environment() {
        let hold = Hold {
            name: "a name: of words".to_owned(),
            claim: "07".to_owned(),
            token: "11".to_owned(),
            lineage: "0a".to_owned(),
        };
        assert_eq!(Hold::parse(&hold.line()), Some(hold));
        assert_eq!(Hold::parse("07 11 0a"), None);
    }
}
