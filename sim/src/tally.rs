//! Figures of one run, or summed over many runs.

use std::{collections::BTreeMap, fmt, time::Duration};

/// The figures of one run, or of many.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The number of seeds.
    pub runs: u64,
    /// The number of acquisitions that were called.
    pub calls: u64,
    /// The number of guards that were granted.
    pub grants: u64,
    /// How many of the grants were made within a process, without the server.
    pub local: u64,
    /// How many of the local grants went to an owner that held the lock already.
    pub again: u64,
    /// The number of grants that the server made to claims in the queue, with or without a notification.
    pub handed_over: u64,
    /// The number of holds that were reported as lost.
    pub losses: u64,
    /// The longest wait of a granted request.
    pub longest_wait: Duration,
    /// The number of faults, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The updates with a fence.
    pub fenced: Updates,
    /// The updates without a fence.
    pub unfenced: Updates,
    /// The virtual time of all runs.
    pub simulated: Duration,
    /// How many cases the checker checked, over all invariants.
    pub checked: u64,
    /// The number of runs in which exclusion was not required.
    pub beyond: u64,
    /// The number of runs with a violation.
    pub violated: u64,
    /// A hash of all events of all runs. It is equal only if every run had the same events in the same order.
    pub digest: u64,
}

/// The updates of a resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Updates {
    /// Updates whose writer got the acknowledgement.
    pub acknowledged: u64,
    /// How many of the acknowledged updates are missing at the end of the run.
    pub lost: u64,
    /// Updates that the fence refused.
    pub refused: u64,
}

impl Tally {
    /// Adds the figures of another tally.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.calls += other.calls;
        self.grants += other.grants;
        self.local += other.local;
        self.again += other.again;
        self.handed_over += other.handed_over;
        self.losses += other.losses;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.fenced.add(other.fenced);
        self.unfenced.add(other.unfenced);
        self.simulated += other.simulated;
        self.checked += other.checked;
        self.beyond += other.beyond;
        self.violated += other.violated;
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

impl Updates {
    fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.refused += other.refused;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |what: &str, figure: String| writeln!(f, "{what:<28} {figure}");
        row("seeds", self.runs.to_string())?;
        row("simulated hours", format!("{:.1}", self.simulated.as_secs_f64() / 3600.0))?;
        row("acquisitions", self.calls.to_string())?;
        row("operations checked", self.checked.to_string())?;
        row("grants", self.grants.to_string())?;
        row("  handed on in a process", (self.local - self.again).to_string())?;
        row("  entered again", self.again.to_string())?;
        row("  handed on by the server", self.handed_over.to_string())?;
        row("holds reported lost", self.losses.to_string())?;
        row("longest wait", format!("{:.1} s", self.longest_wait.as_secs_f64()))?;
        row("faults", self.faults.values().sum::<u64>().to_string())?;
        for (kind, count) in &self.faults {
            row(&format!("  {kind}"), count.to_string())?;
        }
        for (what, updates) in [("fenced updates", self.fenced), ("unfenced updates", self.unfenced)] {
            let Updates { acknowledged, lost, refused } = updates;
            row(what, format!("{acknowledged} acknowledged, {lost} lost, {refused} refused"))?;
        }
        row("seeds beyond the promise", self.beyond.to_string())?;
        row("violations", self.violated.to_string())?;
        row("digest", format!("{:016x}", self.digest))
    }
}
