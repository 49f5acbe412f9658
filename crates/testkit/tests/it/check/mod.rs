//! The checker, on histories of known verdicts.

mod changes;
mod dice;
mod mutants;
mod second_opinion;
mod tale;
mod verdicts;
mod world;
