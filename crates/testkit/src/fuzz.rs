//! Random bytes for parsers: samples and their mutations, from a seed. cargo-fuzz runs the same targets with coverage
//! feedback; see `fuzz/` in the repository.

use std::{
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::{Duration, Instant},
};

/// The number of mutated inputs of a test. They take one or two seconds without optimisation.
const INPUTS: u64 = 20_000;
/// The seed, unless the environment names another.
const SEED: u64 = 17;
/// Mutations do not make an input longer than this. What a parser does depends mostly on the first bytes of an input.
const MAX_INPUT_BYTES: usize = 4096;
/// The largest number of mutations of one input.
const MAX_MUTATIONS: u64 = 6;
/// The largest number of prefixes of one sample.
const MAX_PREFIXES: usize = 512;

/// Numbers that often break parsers.
const NUMBERS: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];

/// Calls `target` with all samples, their prefixes, and 20,000 mutated inputs, which are the same in each run. In the
/// environment, `LEASEHOLD_FUZZ_SECONDS` sets a time in place of the number of mutated inputs, and `LEASEHOLD_SEED`
/// sets the seed.
///
/// # Panics
/// If the target panics. The input is printed.
pub fn run(samples: &[Vec<u8>], target: impl Fn(&[u8])) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let mut rng = Rng(number("LEASEHOLD_SEED").unwrap_or(SEED));
    let limit = number("LEASEHOLD_FUZZ_SECONDS").map(Duration::from_secs);
    run_input(&target, &[]);
    for sample in samples {
        run_input(&target, sample);
        (0..sample.len().min(MAX_PREFIXES)).for_each(|end| run_input(&target, &sample[..end]));
    }
    let begin = Instant::now();
    let mut inputs_run = 0;
    while limit.map_or(inputs_run < INPUTS, |limit| begin.elapsed() < limit) {
        inputs_run += 1;
        run_input(&target, &rng.input(samples));
    }
}

/// Calls the target with one input. Prints the input if the target panics.
fn run_input(target: &impl Fn(&[u8]), input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let mut hex = String::new();
        for byte in input {
            let _ = write!(hex, "{byte:02x}");
        }
        eprintln!("the target panicked at {} bytes: {hex}", input.len());
        resume_unwind(panic);
    }
}

/// Random numbers (<https://prng.di.unimi.it/splitmix64.c>).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if `end` is 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % (end.max(1) as u64)) as usize
    }

    /// A random item; `None` if there is none.
    fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// A new input: a mutated sample or, rarely, random bytes.
    fn input(&mut self, samples: &[Vec<u8>]) -> Vec<u8> {
        let mut input = match self.pick(samples) {
            Some(sample) if self.below(16) > 0 => sample.clone(),
            _ => {
                let length = self.below(64);
                self.bytes(length)
            }
        };
        for _ in 0..=self.next() % MAX_MUTATIONS {
            self.mutate(&mut input, samples);
        }
        input.truncate(MAX_INPUT_BYTES);
        input
    }

    /// Changes an input in one random way.
    fn mutate(&mut self, input: &mut Vec<u8>, samples: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        match self.below(8) {
            0 => self.write_number(input, at, 1),
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            2 => input.truncate(at),
            3 => {
                let end = (at + self.below(16)).min(input.len());
                drop(input.drain(at..end));
            }
            4 => {
                let (count, many) = (self.below(8), self.below(4));
                let bytes = self.bytes(count).repeat(many);
                drop(input.splice(at..at, bytes));
            }
            5 => {
                let end = (at + self.below(32)).min(input.len());
                let again = input[at..end].repeat(1 + self.below(8));
                drop(input.splice(at..at, again));
            }
            6 => {
                let width = [2, 4, 8][self.below(3)];
                self.write_number(input, at, width);
            }
            _ => {
                let other = self.pick(samples).cloned().unwrap_or_default();
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend(&other[from..]);
            }
        }
    }

    /// Overwrites up to `width` bytes of the input, from index `at` on, with one of [`NUMBERS`].
    fn write_number(&mut self, input: &mut [u8], at: usize, width: usize) {
        let number = NUMBERS[self.below(NUMBERS.len())];
        let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
        let bytes = if self.below(2) == 0 { &little[..width] } else { &big[8 - width..] };
        input.iter_mut().skip(at).zip(bytes).for_each(|(old, new)| *old = *new);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn inputs_are_reproducible_and_go_beyond_the_samples() {
        let inputs = || {
            let inputs = RefCell::new(Vec::new());
            run(&[b"sample".to_vec(), vec![0; 9]], |input| inputs.borrow_mut().push(input.to_vec()));
            inputs.into_inner()
        };
        let all = inputs();
        assert_eq!(all, inputs());
        for wanted in [&b""[..], b"sam", b"sample", &[0; 9]] {
            assert!(all.iter().any(|input| input == wanted), "{wanted:?}");
        }
        assert!(all.iter().any(|input| input.windows(4).any(|window| window == [0x7f, 0xff, 0xff, 0xff])));
        assert!(
            all.iter().any(|input| input.len() > 100)
                && all.iter().all(|input| input.len() <= MAX_INPUT_BYTES)
        );
    }

    #[test]
    fn a_panic_of_the_target_fails_the_run() {
        let ran = catch_unwind(|| run(&[b"sample".to_vec()], |input| assert_ne!(input, b"samp")));
        assert!(ran.is_err());
    }
}
