//! Random histories against a model of the holders.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Create {
        engine: usize,
        mode: usize,
        may_queue: bool,
    },
    Ask(usize),
    Release(usize),
    /// The engine ends with all its claims, as in a killed process.
    Drop(usize),
}

const ENGINES: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..ENGINES, 0..3_usize, any::<bool>())
            .prop_map(|(engine, mode, may_queue)| Step::Create { engine, mode, may_queue }),
        4 => any::<prop::sample::Index>().prop_map(|at| Step::Ask(at.index(64))),
        4 => any::<prop::sample::Index>().prop_map(|at| Step::Release(at.index(64))),
        1 => (0..ENGINES).prop_map(Step::Drop),
    ]
}

struct World {
    scratch: Scratch,
    engines: Vec<FileEngine>,
    /// Live claims in the order of arrival: engine, claim, whether it holds.
    live: Vec<(usize, Claim, bool)>,
    last_token: u64,
}

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        let engines = (0..ENGINES).map(|_| scratch.engine()).collect();
        Self { scratch, engines, live: Vec::new(), last_token: 0 }
    }

    fn apply(&mut self, step: Step, modes: [Mode; 3]) {
        match step {
            Step::Create { engine, mode, may_queue } => {
                let claim = Claim { may_queue, ..claim("job", modes[mode]) };
                match create(&self.engines[engine], &claim).unwrap() {
                    Answer::Held(grant) => {
                        self.granted(&claim, grant, self.live.len());
                        self.live.push((engine, claim, true));
                    }
                    Answer::Waiting(hint) => {
                        let before = self.live.iter().filter(|(_, _, holds)| !holds).count();
                        // More only by dead waiters, because liveness is not checked behind the first live one.
                        assert!(hint.ahead >= Some(before as u32));
                        self.live.push((engine, claim, false));
                    }
                    Answer::Taken(_) => {
                        assert!(!may_queue && !self.could_be_granted(&claim, self.live.len()))
                    }
                    Answer::Gone => panic!("a new claim is gone"),
                }
            }
            Step::Ask(at) if !self.live.is_empty() => {
                let at = at % self.live.len();
                let (engine, claim, holds) = self.live[at].clone();
                match ask(&self.engines[engine], &claim).unwrap() {
                    Answer::Held(grant) if !holds => {
                        self.granted(&claim, grant, at);
                        self.live[at].2 = true;
                    }
                    Answer::Held(_) => {}
                    Answer::Waiting(_) => {
                        assert!(!holds && !self.could_be_granted(&claim, at), "{claim:?} waits in vain")
                    }
                    other => panic!("{other:?}"),
                }
            }
            Step::Release(at) if !self.live.is_empty() => {
                let (engine, claim, _) = self.live.remove(at % self.live.len());
                freed(&self.engines[engine], &claim);
            }
            Step::Drop(engine) => {
                die(std::mem::replace(&mut self.engines[engine], self.scratch.engine()));
                self.live.retain(|(of, ..)| *of != engine);
            }
            Step::Ask(_) | Step::Release(_) => {}
        }
    }

    fn granted(&mut self, claim: &Claim, grant: Grant, at: usize) {
        assert!(self.could_be_granted(claim, at), "{claim:?} was granted past {:?}", self.live);
        assert!(grant.token.number > self.last_token);
        self.last_token = grant.token.number;
    }

    /// By the rules: compatible with every hold, and with every waiter ahead.
    fn could_be_granted(&self, claim: &Claim, at: usize) -> bool {
        let shares = |other: Mode| matches!((claim.mode, other), (Mode::Shared, Mode::Shared));
        let count = |mode| if let Mode::Permits { count, .. } = mode { count } else { 0 };
        let holds = || self.live.iter().filter(|(.., holds)| *holds).map(|(_, claim, _)| claim.mode);
        let fits = match claim.mode {
            Mode::Permits { limit, .. } => holds().map(count).sum::<u32>() + count(claim.mode) <= limit,
            _ => holds().all(shares),
        };
        let mut before = self.live[..at].iter().filter(|(.., holds)| !holds).map(|(_, claim, _)| claim.mode);
        fits && before.all(shares)
    }

    /// Every claim asks and releases until none is left: all are granted, first come first served.
    fn drain(mut self) {
        while !self.live.is_empty() {
            let (engine, claim, _) = self.live[0].clone();
            held(ask(&self.engines[engine], &claim));
            freed(&self.engines[engine], &claim);
            self.live.remove(0);
        }
        let last = claim("job", Mode::Exclusive);
        held(create(&self.engines[0], &last));
        freed(&self.engines[0], &last);
        assert_eq!(
            std::fs::read(self.scratch.state_file("job")).unwrap()[576],
            0,
            "no record is left in the table"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn locks_obey_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.apply(step, [Mode::Exclusive, Mode::Shared, Mode::Exclusive]));
        world.drain();
    }

    #[test]
    fn semaphores_obey_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        let permits = |count| Mode::Permits { count, limit: 4 };
        steps.into_iter().for_each(|step| world.apply(step, [permits(1), permits(2), permits(4)]));
        world.drain();
    }
}
