//! The properties that must hold in every world, with the numbers of the invariants in `docs/rules.md`.

use stateright::Property;

use super::{action::Protocol, world::World};

/// I1: at most one client holds the name at a time, as far as each client knows.
pub(crate) const EXCLUSION: &str = "I1: no two holds are valid at once";
/// The event that every run without a broken property must see.
pub(crate) const GRANTED_AGAIN: &str = "a name is granted to one after another";
/// I4: tokens grow in the order of the grants.
pub(crate) const TOKENS: &str = "I4: tokens grow in the order of the grants";

pub(crate) fn all() -> Vec<Property<Protocol>> {
    let always = Property::<Protocol>::always;
    let sometimes = Property::<Protocol>::sometimes;
    vec![
        always(EXCLUSION, |model, world: &World| model.rules.tokens || world.valid_holders() <= 1),
        always(TOKENS, |_, world: &World| !world.token_went_back),
        // Without grants every property would hold, so every run must see a second grant.
        sometimes(GRANTED_AGAIN, |_, world: &World| world.grants > 1),
    ]
}
