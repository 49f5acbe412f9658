//! The properties that must hold in every world, with the numbers of the invariants in `docs/rules.md`.

use stateright::Property;

use crate::{
    Id, Protocol, Rules, Sights, World,
    client::Stage,
    server::{Call, Server, Value},
};

/// I1: at most one client or other program holds the name at a time, as far as they know.
pub(crate) const EXCLUSION: &str = "I1: no two holds are valid at once";
/// I2: a client never counts a hold as valid after its lease has ended on the server.
pub(crate) const HONEST: &str = "I2: validity ends no later than the lease on the server";
/// I4: tokens grow in the order of the grants.
pub(crate) const TOKENS: &str = "I4: tokens grow in the order of the grants";
/// I5: the resource accepts no write after one with a larger token.
pub(crate) const OVERTAKEN: &str = "I5: no write follows one with a larger token";
/// I5: no acknowledged write is lost.
pub(crate) const WHOLE: &str = "I5: no acknowledged write is lost";
/// I6: the server has no state of clients that are gone.
pub(crate) const REST: &str = "I6: when all are gone, nothing is left";
/// I7: a free name with a live waiter is granted in time.
pub(crate) const WAKES: &str = "I7: a free name with a live waiter is granted in time";
/// I8: no claim is granted before a live claim that is ahead of it in the queue.
pub(crate) const ORDER: &str = "I8: no claim passes a live claim in the queue";
/// I10: the result of a release is true.
pub(crate) const TRUTH: &str = "I10: a release tells the truth";
/// I11: a claim that ended leaves nothing.
pub(crate) const GONE: &str = "I11: a claim that ended leaves nothing";
/// The next holder is notified of a lapse.
pub(crate) const LAPSES: &str = "the next holder is notified of a lapse";

pub(crate) fn all() -> Vec<Property<Protocol>> {
    let always = Property::<Protocol>::always;
    vec![
        always(EXCLUSION, |model, world: &World| world.valid_holders(&model.rules) <= 1),
        always(HONEST, |model, world: &World| is_honest(world, &model.rules)),
        always(TOKENS, |_, world: &World| !world.judge.went_back),
        always(OVERTAKEN, |_, world: &World| !world.resource.overtaken),
        always(WHOLE, |_, world: &World| world.resource.is_whole()),
        always(REST, |model, world: &World| {
            !is_over(world, &model.rules) || leaves_nothing(world, &model.rules)
        }),
        always(WAKES, |model, world: &World| world.judge.idle <= model.rules.patience()),
        always(ORDER, |_, world: &World| !world.judge.barged),
        always(TRUTH, |_, world: &World| !world.judge.lied),
        always(GONE, |model, world: &World| {
            model.rules.ids().all(|id| world.clients[id].stage != Stage::Done || !world.server.knows(id))
        }),
        always(LAPSES, |_, world: &World| !world.judge.unreported),
    ]
}

fn is_honest(world: &World, rules: &Rules) -> bool {
    let lasts = |value: Option<Value>, left| {
        world.server.lock.is_some_and(|(stored, lasts)| Some(stored) == value && lasts >= left)
    };
    let ours = rules.ids().all(|id| {
        world.clients[id].valid_hold().is_none_or(|(token, left)| {
            let current_hold = world.server.current_hold();
            let own = current_hold.filter(|hold| hold.id == id && hold.token == token).map(Value::Ours);
            own.is_some() && lasts(own, left)
        })
    });
    ours && (world.foreign.left == 0 || lasts(Some(Value::Foreign), world.foreign.left))
}

/// Whether no client is left that could send anything.
fn is_over(world: &World, rules: &Rules) -> bool {
    rules.ids().all(|id| {
        matches!(world.clients[id].stage, Stage::Done | Stage::Dead) && world.wires[id].late.is_empty()
    })
}

/// Whether the name is as new after some time, even if only a new claim ever looks at it.
fn leaves_nothing(world: &World, rules: &Rules) -> bool {
    let (mut server, mut wires) = (world.server.clone(), world.wires.clone());
    let sights = Sights::default();
    let mut call = Call { rules, sights: &sights, wires: &mut wires, caller: Id(u8::MAX) };
    for _ in 0..rules.entry_life + rules.request_life + rules.clients * (rules.ttl + rules.claim_time) {
        server.tick(rules);
        server.prune(&call);
        server.settle(&mut call);
    }
    let Server { lock, holder, queue, tombs, .. } = &mut server;
    lock.is_none()
        && holder.is_none()
        && queue.is_empty()
        && tombs.iter_mut().all(|left| *left == 0)
        && rules.ids().all(|id| server.entries[id].is_none())
}
