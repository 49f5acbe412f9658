//! Who waits for whom at the engines of all URLs: deadlocks, and waits that are far too long.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold::{Diagnostic, Locks, Severity, View};
use leasehold_ops::{
    Reached,
    waits::{Finder, Finding, Look, MIN_APART},
};

use crate::source::Given;

/// The time between the two looks: a little more than a deadlock needs to be one.
const PAUSE: Duration = MIN_APART.saturating_add(Duration::from_millis(50));

/// The engines that have been examined so far. A deadlock over several of them is reported with the last one.
pub(crate) struct Waits<'a> {
    engines: Vec<(String, &'a Locks)>,
    /// How the reader reaches each of them.
    reached: Vec<(String, Reached)>,
}

impl<'a> Waits<'a> {
    /// No engine yet.
    pub(crate) const fn new() -> Self {
        Self { engines: Vec::new(), reached: Vec::new() }
    }

    /// Looks twice at all engines so far and this one, and returns what was found about this one; nothing if its names
    /// cannot be listed, which is a finding of its own.
    pub(crate) fn of_next_engine(&mut self, locks: &'a Locks, url: &Given) -> Vec<Diagnostic> {
        let engine = locks.profile().engine;
        let same = self.engines.iter().filter(|(_, other)| other.profile().engine == engine).count();
        let label = if same == 0 { engine.to_owned() } else { format!("{engine} (URL {})", same + 1) };
        self.engines.push((label.clone(), locks));
        self.reached.push((label.clone(), url.reached(&label)));
        let mut finder = Finder::new();
        let Ok(views) = locks.list_blocking("") else { return Vec::new() };
        let untold = views.iter().flat_map(|view| &view.waiters).filter(|waiter| waiter.waiting.is_none());
        let untold = untold.count();
        if self.look(&mut finder, &label).is_none() {
            return Vec::new();
        }
        sleep(PAUSE);
        let Some(found) = self.look(&mut finder, &label) else { return Vec::new() };
        if found.is_empty() {
            let where_looked = match self.engines.len() {
                1 => "at this engine",
                _ => "at this engine or over the engines so far",
            };
            if untold > 0 {
                let found = format!(
                    "no deadlock {where_looked}; {engine} does not tell how long its waiters wait ({untold} wait \
                     now): `leasehold top` and the page count from their first look"
                );
                return vec![Diagnostic::good("waits", found)];
            }
            let found = format!("no deadlock {where_looked}, and no wait here that is far too long");
            return vec![Diagnostic::good("waits", found)];
        }
        found.iter().map(|finding| self.diagnostic(finding)).collect()
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
        found.retain(|finding| finding.engines().any(|engine| engine == label));
        Some(found)
    }

    fn diagnostic(&self, finding: &Finding) -> Diagnostic {
        let advice = finding.advice(&|label| {
            let known = self.reached.iter().find(|(engine, _)| engine == label);
            known.map_or_else(|| Reached::Label(label.to_owned()), |(_, reached)| reached.clone())
        });
        match finding {
            Finding::Deadlock(deadlock) => {
                Diagnostic::new("waits-deadlock", Severity::Warning, deadlock.to_string(), advice)
            }
            finding => Diagnostic::new("waits-long", Severity::Warning, finding.to_string(), advice),
        }
    }
}
