//! Measures several ways of doing one thing in turns, so that other load of the machine affects all of them alike.

use crate::Failure;

/// How often each way is measured, in short slices. A shared machine is fast and slow by turns, and a slice falls into
/// one or the other. The median counts.
const ROUNDS: usize = 61;

type Measure<'a> = Box<dyn FnMut() -> Result<f64, Failure> + 'a>;

/// The ways. The first is the one that the others are compared with.
pub(crate) struct Contest<'a> {
    unit: &'static str,
    rounds: usize,
    ways: Vec<(&'static str, Measure<'a>)>,
}

impl<'a> Contest<'a> {
    pub(crate) fn new(unit: &'static str) -> Self {
        Self { unit, rounds: ROUNDS, ways: Vec::new() }
    }

    /// Sets the number of rounds, for measurements that take minutes.
    pub(crate) fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds;
        self
    }

    pub(crate) fn way(
        mut self,
        name: &'static str,
        measure: impl FnMut() -> Result<f64, Failure> + 'a,
    ) -> Self {
        self.ways.push((name, Box::new(measure)));
        self
    }

    /// Measures all ways in turns and prints the median, the range, and the ratio to the first way.
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.measured().map(drop)
    }

    /// The same, and returns the medians.
    pub(crate) fn measured(mut self) -> Result<Vec<f64>, Failure> {
        let mut figures = vec![Vec::new(); self.ways.len()];
        for round in 0..self.rounds {
            // Each round begins with another way, because the first measurement of a round may fill caches that the
            // others find warm.
            for turn in 0..self.ways.len() {
                let at = (round + turn) % self.ways.len();
                figures[at].push((self.ways[at].1)()?);
            }
        }
        println!("  {} rounds; median, ratio of medians, best and worst", self.rounds);
        let (mut first, mut medians) = (None, Vec::new());
        for ((name, _), figures) in self.ways.iter().zip(&mut figures) {
            let median = quantile(figures, 0.5);
            medians.push(median);
            let ratio = median / *first.get_or_insert(median);
            let (least, most) = (figures[0], figures[figures.len() - 1]);
            println!(
                "  {name:44} {:>11} {:14} {ratio:6.2} x   ({} .. {})",
                shown(median),
                self.unit,
                shown(least),
                shown(most)
            );
        }
        Ok(medians)
    }
}

/// Sorts the figures and returns the quantile `at`: 0.5 is the median.
pub(crate) fn quantile(figures: &mut [f64], at: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[((figures.len() - 1) as f64 * at).round() as usize]
}

/// The figure with three significant digits.
fn shown(figure: f64) -> String {
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
