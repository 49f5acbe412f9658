//! Tests that the server of the model does the same as the *pure machine* of core, which is `LockState` in
//! `crates/core`. The tests of `crates/redis` compare the scripts with the same machine.

use std::time::Duration;

use leasehold_core::{
    Answer, Claim, ClaimId, Instant, Lineage, Mode, Name, Previous, Release, Token,
    lock_state::{LockState, StepContext, Tombstones, entry_life},
};
use proptest::prelude::*;

use crate::{
    EventCounts, Id, Rules,
    rules::PerClient,
    runs::SLOW,
    server::{Call, Server},
    wire::{Grant, How, Reply, Request, Wire},
};

/// The length of a tick of the model. With this length, queue entries last as long in the model as in core.
const TICK: Duration = Duration::from_secs(5);
const RULES: Rules = Rules { clients: 3, ..SLOW };
const LINEAGE: Lineage = Lineage::new(0);

#[derive(Clone, Copy, Debug)]
enum Step {
    Tick,
    Serve(Id, Verb),
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Claim(How),
    Renew(TokenChoice),
    Release(Option<TokenChoice>),
}

/// Which token a request carries.
#[derive(Clone, Copy, Debug)]
enum TokenChoice {
    Own,
    Wrong,
}

fn step() -> impl Strategy<Value = Step> {
    let token_choice = || prop_oneof![4 => Just(TokenChoice::Own), 1 => Just(TokenChoice::Wrong)];
    let verb = prop_oneof![
        3 => Just(Verb::Claim(How::Create)),
        3 => Just(Verb::Claim(How::Ask)),
        1 => token_choice().prop_map(Verb::Renew),
        2 => prop::option::weighted(0.7, token_choice()).prop_map(Verb::Release),
    ];
    prop_oneof![1 => Just(Step::Tick), 2 => (0..3u8, verb).prop_map(|(id, verb)| Step::Serve(Id(id), verb))]
}

fn ticks(ticks: u8) -> Duration {
    TICK * u32::from(ticks)
}

/// The machine of core and the server of the model.
struct Both {
    queue: LockState<Id>,
    tombstones: Tombstones,
    now: Instant,
    newest_token: u64,
    pushed: Vec<(Id, Grant)>,
    server: Server,
    wires: PerClient<Wire>,
    /// The newest known token of each claim.
    tokens: [u8; 3],
}

impl Both {
    fn new() -> Self {
        let mut wires = PerClient::<Wire>::default();
        wires.iter_mut().for_each(Wire::connect);
        let now = Instant::from_nanos(1_000_000_000);
        let (queue, tombstones, server) = (LockState::new(), Tombstones::default(), Server::default());
        Self { queue, tombstones, now, newest_token: 0, pushed: Vec::new(), server, wires, tokens: [0; 3] }
    }

    fn step<R>(&mut self, act: impl FnOnce(&mut LockState<Id>, &mut StepContext<'_, Id>) -> R) -> R {
        let newest_token = &mut self.newest_token;
        let mut mint = |tokens: u32| {
            *newest_token += u64::from(tokens);
            Token { lineage: LINEAGE, number: *newest_token }
        };
        let mut step = StepContext::new(self.now, ticks(RULES.request_life), &mut self.tombstones, &mut mint);
        let answer = act(&mut self.queue, &mut step);
        self.pushed = step
            .pushed
            .iter()
            .map(|pushed| (pushed.id, grant(&pushed.grant)))
            .map(|(id, grant)| (id_of(id), grant))
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
        let events = EventCounts::default();
        let mut call = Call { rules: &RULES, events: &events, wires: &mut self.wires, caller };
        act(&mut self.server, &mut call)
    }

    fn serve(&mut self, id: Id, verb: Verb) {
        let token = |which| match which {
            TokenChoice::Own => self.tokens[usize::from(id.0)],
            TokenChoice::Wrong => u8::MAX,
        };
        let request = match verb {
            Verb::Claim(how) => Request::Claim(how),
            Verb::Renew(token_choice) => Request::Renew(token(token_choice)),
            // Every release asks for a tombstone, because the machine leaves one after every release.
            Verb::Release(token_choice) => {
                Request::Release { token: token_choice.map(token), mark_dead: true }
            }
        };
        let reply = self.call(id, |server, call| server.serve(request, call));
        let expected = self.step(|queue, step| serve_by_core(queue, step, id, request));
        assert_eq!(answer_text(reply), expected, "{request:?} of {id:?}");
        self.pushed.retain(|(other, _)| *other != id);
        if let Reply::Held(grant) = reply {
            self.tokens[usize::from(id.0)] = grant.token;
        }
    }

    /// Checks that the machine and the server pushed the same grants, and have the same holder and the same queue.
    fn compare(&mut self) {
        let mut pushed = Vec::new();
        for id in RULES.ids() {
            pushed.extend(self.wires[id].pushes.drain(..).map(|push| (id, push.message)));
        }
        for (id, grant) in &pushed {
            self.tokens[usize::from(id.0)] = grant.token;
        }
        assert_eq!(pushed, self.pushed);
        let view = self.queue.view(&name(), "", self.now);
        let core_holders =
            view.holders.iter().map(|holder| (holder.id.clone(), holder.token, holder.remaining));
        let (current_hold, lock) = (self.server.current_hold(), self.server.lock);
        let model_holder = current_hold.zip(lock).map(|(hold, (_, left))| {
            (claim_id(hold.id).to_string(), Some(u64::from(hold.token)), Some(ticks(left)))
        });
        assert_eq!(core_holders.collect::<Vec<_>>(), model_holder.into_iter().collect::<Vec<_>>());
        let waiters: Vec<String> = view.waiters.iter().map(|waiter| waiter.id.clone()).collect();
        let queue: Vec<String> = self.server.queue.iter().map(|id| claim_id(*id).to_string()).collect();
        assert_eq!(waiters[..queue.len().min(waiters.len())], queue);
        let silent = RULES.ids().filter(|id| self.server.entries[*id].is_some_and(|entry| entry.silent));
        assert_eq!(waiters.len(), queue.len() + silent.count());
    }
}

/// Sends a request of the model to the machine of core. Returns the answer in the form of [`answer_text`].
fn serve_by_core(
    queue: &mut LockState<Id>,
    step: &mut StepContext<'_, Id>,
    id: Id,
    request: Request,
) -> String {
    let token = |token| Token { lineage: LINEAGE, number: u64::from(token) };
    match request {
        Request::Claim(how) => {
            let how = if how == How::Ask { leasehold_core::How::Ask } else { leasehold_core::How::Create };
            match queue.claim(&claim(id), how, &id, step).unwrap() {
                Answer::Held(held) => answer_text(Reply::Held(grant(&held))),
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

fn answer_text(reply: Reply) -> String {
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

fn id_of(id: ClaimId) -> Id {
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
    fn the_server_answers_as_the_machine_of_core(steps in prop::collection::vec(step(), 1..60)) {
        let mut both = Both::new();
        for step in steps {
            match step {
                Step::Tick => both.tick(),
                Step::Serve(id, verb) => both.serve(id, verb),
            }
            both.compare();
        }
    }
}
