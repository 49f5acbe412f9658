//! The checker, on histories of known verdicts.

mod dice;
mod second_opinion;
mod tale;
mod verdicts;
