//! The queue, example by example. What must hold for every order of events is in `properties.rs`.

mod ends;
mod grants;
mod lines;
