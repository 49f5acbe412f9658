//! The live view of `leasehold top`. `state` is what the screen shows and how keys change it, with `rows` (order
//! and filter) and `question` (whether to break a hold); these are pure. `draw`, `table` and `cards` paint the
//! state, with the texts of `help`, and `wrap` continues long lines. `screen` and `keys` have the terminal, `breaking`
//! sends the request to break a hold, `view` is the loop.

mod breaking;
mod cards;
mod draw;
mod help;
mod keys;
mod question;
mod rows;
#[cfg(test)]
mod sample;
mod screen;
mod state;
mod table;
mod view;
mod wrap;

pub(crate) use view::{terminal, view};
