//! Who waits for whom at the engines of all URLs: deadlocks, and waits that are far too long.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold::{Diagnostic, Locks, Severity, View};
use leasehold_ops::waits::{Engines, Finder, Finding, Look, MIN_APART, Party};

/// The time between the two looks: a little more than a deadlock needs to be one.
const PAUSE: Duration = MIN_APART.saturating_add(Duration::from_millis(50));

/// The engines that have been examined so far. A deadlock over several of them is reported with the last one.
pub(crate) struct Waits<'a> {
    engines: Vec<(String, &'a Locks)>,
    /// How many engines the command examines.
    all: Engines,
}

impl<'a> Waits<'a> {
    /// No engine yet, of so many.
    pub(crate) const fn at(engines: usize) -> Self {
        Self { engines: Vec::new(), all: Engines::of_count(engines) }
    }

    /// Looks twice at all engines so far and this one, and returns what was found about this one; nothing if its names
    /// cannot be listed, which is a finding of its own.
    pub(crate) fn of_next_engine(&mut self, locks: &'a Locks) -> Vec<Diagnostic> {
        let engine = locks.profile().engine;
        let same = self.engines.iter().filter(|(_, other)| other.profile().engine == engine).count();
        let label = if same == 0 { engine.to_owned() } else { format!("{engine} (URL {})", same + 1) };
        self.engines.push((label.clone(), locks));
        let mut finder = Finder::new();
        if self.look(&mut finder, &label).is_none() {
            return Vec::new();
        }
        sleep(PAUSE);
        let Some(found) = self.look(&mut finder, &label) else { return Vec::new() };
        if found.is_empty() {
            return vec![Diagnostic::good("waits", "no deadlock, and no wait that is far too long")];
        }
        found.iter().map(|finding| diagnostic(finding, self.all)).collect()
    }

    /// One look at all engines that answer. Returns the findings about the engine with this label; `None` if it does
    /// not answer.
    fn look(&self, finder: &mut Finder, label: &str) -> Option<Vec<Finding>> {
        let listed = self.engines.iter().filter_map(|(engine, locks)| {
            Some((engine.as_str(), locks.profile().fifo, locks.list_blocking("").ok()?))
        });
        let listed: Vec<(&str, bool, Vec<View>)> = listed.collect();
        listed.iter().find(|(engine, ..)| *engine == label)?;
        let looks: Vec<_> =
            listed.iter().map(|(engine, fifo, views)| Look { engine, fifo: *fifo, views }).collect();
        let mut found = finder.next(&looks, Instant::now());
        found.retain(|finding| parties(finding).any(|party| party.engine == label));
        Some(found)
    }
}

/// The claims that a finding is about.
fn parties(finding: &Finding) -> impl Iterator<Item = &Party> {
    let (blocks, waiter) = match finding {
        Finding::Deadlock(deadlock) => (deadlock.blocks.as_slice(), None),
        Finding::LongWait(long_wait) => (&[][..], Some(&long_wait.waiter)),
        _ => (&[][..], None),
    };
    blocks.iter().map(|block| &block.waiter).chain(waiter)
}

fn diagnostic(finding: &Finding, engines: Engines) -> Diagnostic {
    let advice = finding.advice(engines);
    match finding {
        Finding::Deadlock(deadlock) => {
            Diagnostic::new("waits-deadlock", Severity::Warning, deadlock.to_string(), advice)
        }
        finding => Diagnostic::new("waits-long", Severity::Warning, finding.to_string(), advice),
    }
}
