//! The properties that must hold in every world, with the numbers of the invariants in `docs/rules.md`.

use stateright::Property;

use crate::{
    EventCounts, Id, Protocol, Rules, World,
    client::Stage,
    server::{Call, Server, Value},
};

/// I1: at most one client or other program holds the name at a time, as far as each of them knows.
pub(crate) const EXCLUSION: &str = "I1: no two holds are valid at once";
/// I2: a client never counts a hold as valid after its lease has ended on the server.
pub(crate) const HONEST_DEADLINES: &str = "I2: validity ends no later than the lease on the server";
/// I4: tokens grow in the order of the grants.
pub(crate) const GROWING_TOKENS: &str = "I4: tokens grow in the order of the grants";
/// I5: the resource accepts no write after a write with a larger token.
pub(crate) const WRITES_IN_ORDER: &str = "I5: no write follows one with a larger token";
/// I5: no acknowledged write is lost.
pub(crate) const NO_LOST_WRITE: &str = "I5: no acknowledged write is lost";
/// I6: the server has no state of clients that are gone.
pub(crate) const NOTHING_LEFT: &str = "I6: when all are gone, nothing is left";
/// I7: a free name that a live client waits for is granted in time.
pub(crate) const NO_LOST_WAKE_UP: &str = "I7: a free name with a live waiter is granted in time";
/// I8: no claim is granted while a live claim is ahead of it in the queue.
pub(crate) const QUEUE_ORDER: &str = "I8: no claim passes a live claim in the queue";
/// I10: the result of a release is true.
pub(crate) const TRUE_RELEASES: &str = "I10: a release tells the truth";
/// I11: a claim that has ended leaves nothing.
pub(crate) const NOTHING_LEFT_OF_CLAIM: &str = "I11: a claim that ended leaves nothing";
/// The next holder is told that the previous hold lapsed.
pub(crate) const LAPSES_REPORTED: &str = "the next holder is notified of a lapse";

pub(crate) fn all() -> Vec<Property<Protocol>> {
    let always = Property::<Protocol>::always;
    vec![
        always(EXCLUSION, |model, world: &World| world.valid_holders(&model.rules) <= 1),
        always(HONEST_DEADLINES, |model, world: &World| deadlines_are_honest(world, &model.rules)),
        always(GROWING_TOKENS, |_, world: &World| !world.judge.token_went_back),
        always(WRITES_IN_ORDER, |_, world: &World| !world.resource.write_overtaken),
        always(NO_LOST_WRITE, |_, world: &World| world.resource.has_all_additions()),
        always(NOTHING_LEFT, |model, world: &World| {
            !is_over(world, &model.rules) || leaves_nothing(world, &model.rules)
        }),
        always(NO_LOST_WAKE_UP, |model, world: &World| world.judge.idle_time <= model.rules.patience()),
        always(QUEUE_ORDER, |_, world: &World| !world.judge.queue_was_passed),
        always(TRUE_RELEASES, |_, world: &World| !world.judge.release_lied),
        always(NOTHING_LEFT_OF_CLAIM, |model, world: &World| {
            model.rules.ids().all(|id| world.clients[id].stage != Stage::Done || !world.server.knows(id))
        }),
        always(LAPSES_REPORTED, |_, world: &World| !world.judge.lapse_unreported),
    ]
}

fn deadlines_are_honest(world: &World, rules: &Rules) -> bool {
    let is_stored_for = |value: Option<Value>, at_least| {
        world.server.lock.is_some_and(|(stored, left)| Some(stored) == value && left >= at_least)
    };
    let our_holds_are = rules.ids().all(|id| {
        world.clients[id].valid_hold().is_none_or(|(token, left)| {
            let current_hold = world.server.current_hold();
            let own = current_hold.filter(|hold| hold.id == id && hold.token == token).map(Value::Ours);
            own.is_some() && is_stored_for(own, left)
        })
    });
    our_holds_are && (world.foreign.left == 0 || is_stored_for(Some(Value::Foreign), world.foreign.left))
}

/// Whether no request can be sent or served any more.
fn is_over(world: &World, rules: &Rules) -> bool {
    rules.ids().all(|id| {
        matches!(world.clients[id].stage, Stage::Done | Stage::Dead) && world.wires[id].late.is_empty()
    })
}

/// Whether the server has no state of the earlier claims any more when all leases, entries and tombstones have expired.
/// Only the cleanup that a new claim would do is done meanwhile.
fn leaves_nothing(world: &World, rules: &Rules) -> bool {
    let (mut server, mut wires) = (world.server.clone(), world.wires.clone());
    let events = EventCounts::default();
    let mut call = Call { rules, events: &events, wires: &mut wires, caller: Id(u8::MAX) };
    for _ in 0..rules.entry_life + rules.request_life + rules.clients * (rules.ttl + rules.claim_time) {
        server.tick(rules);
        server.prune(&call);
        server.settle(&mut call);
    }
    let Server { lock, holder, queue, tombstones, .. } = &mut server;
    lock.is_none()
        && holder.is_none()
        && queue.is_empty()
        && tombstones.iter_mut().all(|left| *left == 0)
        && rules.ids().all(|id| server.entries[id].is_none())
}
