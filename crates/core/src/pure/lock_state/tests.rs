//! The lock state, example by example. The rules for every order of events are in `properties.rs`.

mod conversions;
mod ends;
mod grants;
mod queue;
