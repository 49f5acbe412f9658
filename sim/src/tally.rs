//! Figures of one run, and of many.

use std::{collections::BTreeMap, fmt, time::Duration};

/// Figures.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Seeds.
    pub runs: u64,
    /// Acquisitions that were called.
    pub calls: u64,
    /// Guards that were granted; how many of them without the server, and of these to an owner that held already.
    pub grants: u64,
    /// See there.
    pub local: u64,
    /// See there.
    pub again: u64,
    /// Grants that were pushed to a claim in line, or found by it.
    pub in_line: u64,
    /// Holds that were told lost.
    pub losses: u64,
    /// The longest that a granted request waited.
    pub longest_wait: Duration,
    /// What went wrong, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Updates that were acknowledged, and how many of them were lost, with a fence and without.
    pub fenced: Updates,
    /// See there.
    pub unfenced: Updates,
    /// How long it was in the worlds.
    pub simulated: Duration,
    /// What the checker looked at.
    pub checked: u64,
    /// Runs of which exclusion was not asked for.
    pub beyond: u64,
    /// Runs that violated something.
    pub violated: u64,
    /// Of how all of them went: equal only where each went the same way.
    pub digest: u64,
}

/// Updates of a resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Updates {
    /// The writer was told that it is done.
    pub acknowledged: u64,
    /// Those of them that are not there.
    pub lost: u64,
    /// Refused by the fence.
    pub refused: u64,
}

impl Tally {
    /// Adds the figures of another.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.calls += other.calls;
        self.grants += other.grants;
        self.local += other.local;
        self.again += other.again;
        self.in_line += other.in_line;
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
        row("  handed on by the server", self.in_line.to_string())?;
        row("holds told lost", self.losses.to_string())?;
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
