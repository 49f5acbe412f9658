//! Tests that the server of the model does the same as the pure machine of core. The tests of `crates/redis` compare
//! the scripts with that machine.

use std::time::Duration;

use leasehold_core::{
    Answer, Claim, ClaimId, Instant, Lineage, Mode, Name, Previous, Release, Token,
    lock_state::{LockState, StepContext, Tombstones, entry_life},
};
use proptest::prelude::*;

use crate::{
    Id, Rules, Sights,
    rules::Each,
    runs::SLOW,
    server::{Call, Server},
    wire::{Grant, How, Reply, Request, Wire},
};

/// The length of a tick at which queue entries of the rules last as long as those of core.
const TICK: Duration = Duration::from_secs(5);
const RULES: Rules = Rules { clients: 3, ..SLOW };
const LINEAGE: Lineage = Lineage::new(0);

#[derive(Clone, Copy, Debug)]
enum Event {
    Tick,
    Serve(Id, Asked),
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Claim(How),
    Renew(Which),
    Release(Option<Which>),
}

/// The token that a request carries.
#[derive(Clone, Copy, Debug)]
enum Which {
    Own,
    Wrong,
}

fn event() -> impl Strategy<Value = Event> {
    let which = || prop_oneof![4 => Just(Which::Own), 1 => Just(Which::Wrong)];
    let asked = prop_oneof![
        3 => Just(Asked::Claim(How::Create)),
        3 => Just(Asked::Claim(How::Ask)),
        1 => which().prop_map(Asked::Renew),
        2 => prop::option::weighted(0.7, which()).prop_map(Asked::Release),
    ];
    prop_oneof![1 => Just(Event::Tick), 2 => (0..3u8, asked).prop_map(|(id, asked)| Event::Serve(Id(id), asked))]
}

fn ticks(ticks: u8) -> Duration {
    TICK * u32::from(ticks)
}

/// The machine of core and the server of the model.
struct Both {
    queue: LockState<Id>,
    tombstones: Tombstones,
    now: Instant,
    minted: u64,
    pushed: Vec<(Id, Grant)>,
    server: Server,
    wires: Each<Wire>,
    /// The newest token of each claim.
    tokens: [u8; 3],
}

impl Both {
    fn new() -> Self {
        let mut wires = Each::<Wire>::default();
        wires.iter_mut().for_each(Wire::connect);
        let now = Instant::from_nanos(1_000_000_000);
        let (queue, tombstones, server) = (LockState::new(), Tombstones::default(), Server::default());
        Self { queue, tombstones, now, minted: 0, pushed: Vec::new(), server, wires, tokens: [0; 3] }
    }

    fn step<R>(&mut self, act: impl FnOnce(&mut LockState<Id>, &mut StepContext<'_, Id>) -> R) -> R {
        let minted = &mut self.minted;
        let mut mint = |tokens: u32| {
            *minted += u64::from(tokens);
            Token { lineage: LINEAGE, number: *minted }
        };
        let mut step = StepContext::new(self.now, ticks(RULES.request_life), &mut self.tombstones, &mut mint);
        let answer = act(&mut self.queue, &mut step);
        self.pushed = step
            .pushed
            .iter()
            .map(|pushed| (pushed.id, grant(&pushed.grant)))
            .map(|(id, it)| (number(id), it))
            .collect();
        answer
    }

    fn tick(&mut self) {
        self.now = self.now.after(TICK);
        self.step(|queue, step| queue.settle(step));
        self.server.tick(&RULES);
        self.call(Id(u8::MAX), |server, call| {
            server.prune(call);
            server.settle(call);
        });
    }

    fn call<R>(&mut self, caller: Id, act: impl FnOnce(&mut Server, &mut Call<'_>) -> R) -> R {
        let sights = Sights::default();
        let mut call = Call { rules: &RULES, sights: &sights, wires: &mut self.wires, caller };
        act(&mut self.server, &mut call)
    }

    fn serve(&mut self, id: Id, asked: Asked) {
        let token = |which| match which {
            Which::Own => self.tokens[usize::from(id.0)],
            Which::Wrong => u8::MAX,
        };
        let request = match asked {
            Asked::Claim(how) => Request::Claim(how),
            Asked::Renew(which) => Request::Renew(token(which)),
            // The machine leaves a tombstone after every release.
            Asked::Release(which) => Request::Release { token: which.map(token), mark_dead: true },
        };
        let reply = self.call(id, |server, call| server.serve(request, call));
        let wanted = self.step(|queue, step| ask(queue, step, id, request));
        assert_eq!(shown(reply), wanted, "{request:?} of {id:?}");
        self.pushed.retain(|(other, _)| *other != id);
        if let Reply::Held(grant) = reply {
            self.tokens[usize::from(id.0)] = grant.token;
        }
    }

    /// Both pushed the same grants, and have the same holder and the same queue.
    fn compare(&mut self) {
        let mut pushed = Vec::new();
        for id in RULES.ids() {
            pushed.extend(self.wires[id].pushes.drain(..).map(|push| (id, push.what)));
        }
        for (id, grant) in &pushed {
            self.tokens[usize::from(id.0)] = grant.token;
        }
        assert_eq!(pushed, self.pushed);
        let view = self.queue.view(&name(), "", self.now);
        let held = view.holders.iter().map(|holder| (holder.id.clone(), holder.token, holder.remaining));
        let (current_hold, lock) = (self.server.current_hold(), self.server.lock);
        let stored = current_hold.zip(lock).map(|(hold, (_, left))| {
            (claim_id(hold.id).to_string(), Some(u64::from(hold.token)), Some(ticks(left)))
        });
        assert_eq!(held.collect::<Vec<_>>(), stored.into_iter().collect::<Vec<_>>());
        let waiters: Vec<String> = view.waiters.iter().map(|waiter| waiter.id.clone()).collect();
        let queue: Vec<String> = self.server.queue.iter().map(|id| claim_id(*id).to_string()).collect();
        assert_eq!(waiters[..queue.len().min(waiters.len())], queue);
        let silent = RULES.ids().filter(|id| self.server.entries[*id].is_some_and(|entry| entry.silent));
        assert_eq!(waiters.len(), queue.len() + silent.count());
    }
}

/// Sends the same request to the machine. Returns its answer as [`shown`].
fn ask(queue: &mut LockState<Id>, step: &mut StepContext<'_, Id>, id: Id, request: Request) -> String {
    let token = |token| Token { lineage: LINEAGE, number: u64::from(token) };
    match request {
        Request::Claim(how) => {
            let how = if how == How::Ask { leasehold_core::How::Ask } else { leasehold_core::How::Create };
            match queue.claim(&claim(id), how, &id, step).unwrap() {
                Answer::Held(held) => shown(Reply::Held(grant(&held))),
                Answer::Waiting(_) => "waiting".to_owned(),
                Answer::Gone => "gone".to_owned(),
                other => panic!("{other:?}"),
            }
        }
        Request::Renew(number) => match queue.renew(claim_id(id), token(number), ticks(RULES.ttl), step) {
            Ok(()) => "extended".to_owned(),
            Err(_) => "lost".to_owned(),
        },
        Request::Release { token: number, .. } => {
            let token = number.map(token);
            let (name, mode, ended) = (name(), Mode::Exclusive, Previous::Clean);
            match queue.release(&Release { id: claim_id(id), name, mode, token, ended, min_hold: None }, step)
            {
                true => "freed".to_owned(),
                false => "absent".to_owned(),
            }
        }
    }
}

fn shown(reply: Reply) -> String {
    match reply {
        Reply::Waiting { .. } => "waiting".to_owned(),
        Reply::Held(_) => format!("{reply:?}"),
        _ => format!("{reply:?}").to_lowercase(),
    }
}

fn grant(held: &leasehold_core::Grant) -> Grant {
    let token = u8::try_from(held.token.number).unwrap();
    Grant { token, after_lapse: held.previous == Previous::Lapsed }
}

fn claim_id(id: Id) -> ClaimId {
    ClaimId([id.0; 16])
}

fn number(id: ClaimId) -> Id {
    Id(id.0[0])
}

fn name() -> Name {
    Name::new("n").unwrap()
}

fn claim(id: Id) -> Claim {
    Claim {
        id: claim_id(id),
        name: name(),
        mode: Mode::Exclusive,
        ttl: ticks(RULES.ttl),
        claim_time: ticks(RULES.claim_time),
        may_queue: true,
        tokens: 1,
        owner: "".into(),
        stops_on_term: false,
    }
}

#[test]
fn the_entry_life_of_the_rules_is_that_of_core() {
    assert_eq!(entry_life(ticks(RULES.ttl)), ticks(RULES.entry_life));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_server_answers_as_the_machine_of_core(events in prop::collection::vec(event(), 1..60)) {
        let mut both = Both::new();
        for event in events {
            match event {
                Event::Tick => both.tick(),
                Event::Serve(id, asked) => both.serve(id, asked),
            }
            both.compare();
        }
    }
}
