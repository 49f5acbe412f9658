//! Measures several programs that do the same thing (candidates) in turns, so that other load of the machine affects
//! all candidates alike.

use std::time::{Duration, Instant};

use crate::Failure;

/// How many times each candidate is measured. A shared machine is sometimes fast and sometimes slow. Each measurement
/// is short, so that it falls into one of these phases. The median of the measurements counts.
const ROUNDS: usize = 61;

type Measure<'a> = Box<dyn FnMut() -> Result<f64, Failure> + 'a>;

/// The candidates of one comparison. Every other candidate is compared with the first candidate.
pub(crate) struct Comparison<'a> {
    unit: &'static str,
    rounds: usize,
    limit: Duration,
    candidates: Vec<(&'static str, Measure<'a>)>,
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(unit: &'static str) -> Self {
        Self { unit, rounds: ROUNDS, limit: Duration::MAX, candidates: Vec::new() }
    }

    /// Sets the number of rounds, for measurements that take so long that [`ROUNDS`] are too many.
    pub(crate) fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds;
        self
    }

    /// Begins no further round after this time.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Adds a candidate. `measure` runs it for a short time and returns its figure.
    pub(crate) fn candidate(
        mut self,
        name: &'static str,
        measure: impl FnMut() -> Result<f64, Failure> + 'a,
    ) -> Self {
        self.candidates.push((name, Box::new(measure)));
        self
    }

    /// Measures all candidates in turns. Prints for each the median, the range, and the ratio to the first candidate.
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.run_for_medians().map(drop)
    }

    /// Like [`run`](Self::run), but also returns the medians.
    pub(crate) fn run_for_medians(mut self) -> Result<Vec<f64>, Failure> {
        let mut figures = vec![Vec::new(); self.candidates.len()];
        let candidates = &mut self.candidates;
        let rounds = in_turns(candidates.len(), self.rounds, self.limit, |index| {
            figures[index].push((candidates[index].1)()?);
            Ok(())
        })?;
        println!("  {rounds} rounds; median, ratio of medians, best and worst");
        let (mut first, mut medians) = (None, Vec::new());
        for ((name, _), figures) in self.candidates.iter().zip(&mut figures) {
            let median = quantile(figures, 0.5);
            medians.push(median);
            let ratio = median / *first.get_or_insert(median);
            let (least, most) = (figures[0], figures[figures.len() - 1]);
            println!(
                "  {name:44} {:>11} {:14} {ratio:6.2} x   ({} .. {})",
                three_digits(median),
                self.unit,
                three_digits(least),
                three_digits(most)
            );
        }
        Ok(medians)
    }
}

/// Measures `count` candidates in turns, in rounds, until the time limit has passed. Returns the number of rounds: at
/// least 1.
pub(crate) fn in_turns(
    count: usize,
    rounds: usize,
    limit: Duration,
    mut measure: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<usize, Failure> {
    let begin = Instant::now();
    for round in 0..rounds {
        if round > 0 && begin.elapsed() > limit {
            return Ok(round);
        }
        // Each round begins with another candidate: the first measurement of a round may fill caches, so that the later
        // measurements of the round find them filled.
        for turn in 0..count {
            measure((round + turn) % count)?;
        }
    }
    Ok(rounds)
}

/// Sorts the figures and returns the quantile at `fraction`. With 0.5 this is the median.
pub(crate) fn quantile(figures: &mut [f64], fraction: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[((figures.len() - 1) as f64 * fraction).round() as usize]
}

/// The figure with three significant digits.
pub(crate) fn three_digits(figure: f64) -> String {
    match figure {
        small if small < 10.0 => format!("{small:.2}"),
        middle if middle < 1000.0 => format!("{middle:.1}"),
        large => {
            let digits = format!("{large:.0}");
            let groups: Vec<&str> = digits
                .as_bytes()
                .rchunks(3)
                .rev()
                .map(|group| std::str::from_utf8(group).unwrap_or(""))
                .collect();
            groups.join(",")
        }
    }
}
