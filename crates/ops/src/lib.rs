//! What the tools for operators share: [`changes`] tells what happened between two looks at the locks of an engine.
//!
//! A part of the command `leasehold`. Its interface changes between releases.

mod changes;

pub use changes::{Change, Looks};
