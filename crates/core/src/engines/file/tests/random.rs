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
    /// This engine ends with all its claims, as in a killed process.
    Kill(usize),
}

const ENGINES: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..ENGINES, 0..3_usize, any::<bool>())
            .prop_map(|(engine, mode, may_queue)| Step::Create { engine, mode, may_queue }),
        4 => any::<prop::sample::Index>().prop_map(|at| Step::Ask(at.index(64))),
        4 => any::<prop::sample::Index>().prop_map(|at| Step::Release(at.index(64))),
        1 => (0..ENGINES).prop_map(Step::Kill),
    ]
}

/// The engines, and the model of what they must answer.
struct Model {
    scratch: Scratch,
    engines: Vec<FileEngine>,
    /// The claims that wait or hold, in the order of arrival: engine, claim, whether it holds.
    live: Vec<(usize, Claim, bool)>,
    last_token: u64,
}

impl Model {
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
                        self.check_grant(&claim, grant, self.live.len());
                        self.live.push((engine, claim, true));
                    }
                    Answer::Waiting(hint) => {
                        let before = self.live.iter().filter(|(_, _, holds)| !holds).count();
                        // Dead waiters can make the hint larger, because behind the first live waiter no liveness is
                        // checked.
                        assert!(hint.ahead >= Some(before as u32));
                        self.live.push((engine, claim, false));
                    }
                    Answer::Taken(_) => {
                        assert!(!may_queue && !self.could_be_granted(&claim, self.live.len()))
                    }
                    Answer::Gone => panic!("a new claim is gone"),
                }
            }
            Step::Ask(index) if !self.live.is_empty() => {
                let index = index % self.live.len();
                let (engine, claim, holds) = self.live[index].clone();
                match ask(&self.engines[engine], &claim).unwrap() {
                    Answer::Held(grant) if !holds => {
                        self.check_grant(&claim, grant, index);
                        self.live[index].2 = true;
                    }
                    Answer::Held(_) => {}
                    Answer::Waiting(_) => {
                        assert!(!holds && !self.could_be_granted(&claim, index), "{claim:?} waits in vain")
                    }
                    other => panic!("{other:?}"),
                }
            }
            Step::Release(index) if !self.live.is_empty() => {
                let (engine, claim, _) = self.live.remove(index % self.live.len());
                release_claim(&self.engines[engine], &claim);
            }
            Step::Kill(engine) => {
                simulate_kill(std::mem::replace(&mut self.engines[engine], self.scratch.engine()));
                self.live.retain(|(claim_engine, ..)| *claim_engine != engine);
            }
            Step::Ask(_) | Step::Release(_) => {}
        }
    }

    /// Checks a grant to the claim at `index`.
    fn check_grant(&mut self, claim: &Claim, grant: Grant, index: usize) {
        assert!(self.could_be_granted(claim, index), "{claim:?} was granted past {:?}", self.live);
        assert!(grant.token.number > self.last_token);
        self.last_token = grant.token.number;
    }

    /// Whether the rules allow a grant to the claim at `index`: it is compatible with every hold and every waiter
    /// ahead.
    fn could_be_granted(&self, claim: &Claim, index: usize) -> bool {
        let shares = |other: Mode| matches!((claim.mode, other), (Mode::Shared, Mode::Shared));
        let count = |mode| if let Mode::Permits { count, .. } = mode { count } else { 0 };
        let holds = || self.live.iter().filter(|(.., holds)| *holds).map(|(_, claim, _)| claim.mode);
        let fits = match claim.mode {
            Mode::Permits { limit, .. } => holds().map(count).sum::<u32>() + count(claim.mode) <= limit,
            _ => holds().all(shares),
        };
        let mut before =
            self.live[..index].iter().filter(|(.., holds)| !holds).map(|(_, claim, _)| claim.mode);
        fits && before.all(shares)
    }

    /// Every claim asks and releases until none is left: all are granted, first come first served.
    fn drain(mut self) {
        while !self.live.is_empty() {
            let (engine, claim, _) = self.live[0].clone();
            held(ask(&self.engines[engine], &claim));
            release_claim(&self.engines[engine], &claim);
            self.live.remove(0);
        }
        let last = claim("job", Mode::Exclusive);
        held(create(&self.engines[0], &last));
        release_claim(&self.engines[0], &last);
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
        let mut model = Model::new();
        steps.into_iter().for_each(|step| model.apply(step, [Mode::Exclusive, Mode::Shared, Mode::Exclusive]));
        model.drain();
    }

    #[test]
    fn semaphores_obey_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let mut model = Model::new();
        let permits = |count| Mode::Permits { count, limit: 4 };
        steps.into_iter().for_each(|step| model.apply(step, [permits(1), permits(2), permits(4)]));
        model.drain();
    }
}
