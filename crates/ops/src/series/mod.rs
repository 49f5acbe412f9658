//! Series in the text format of Prometheus: what tools for operators export about the locks of several engines
//! ([`EngineState`], [`Totals`], [`write_deadlocks`]) and about the runs of one job ([`RunSeries`]). Without access to
//! clocks or files: the caller passes in times and texts.

mod engine;
mod families;
mod histogram;
mod names;
mod run;
mod text;
mod totals;
mod waits;

pub use engine::EngineState;
pub use families::{FAMILIES, Family, Kind, RUN_FAMILIES};
pub use names::{MAX_NAMES, NameFilter};
pub use run::{RunEnd, RunOutcome, RunSeries};
pub use text::{CONTENT_TYPE, Exposition};
pub use totals::Totals;
pub use waits::write_deadlocks;
