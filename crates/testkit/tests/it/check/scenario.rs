//! Histories written as text, one line for each event: `<ms> p<process> a<attempt> <event> [<value>...]`.

use std::time::Duration;

use leasehold_core::Mode;
use leasehold_testkit::{
    check::{Invariant, Terms, check},
    history::{AttemptId, Event, Held, History, Phase, RecordedMode, What},
};

/// A history with a known verdict.
pub(crate) struct Scenario<'t> {
    pub(crate) title: &'t str,
    /// The invariants that it violates; it violates no other.
    pub(crate) violates: Vec<Invariant>,
    pub(crate) terms: Terms,
    pub(crate) history: History,
}

/// Reads a file of scenarios. Each begins with a line `# <verdict> [(<terms>)]: <title>`, where the verdict is `holds`
/// or `I1 I3 ...`.
pub(crate) fn scenarios(text: &str) -> Vec<Scenario<'_>> {
    text.split("# ")
        .filter(|part| !part.trim().is_empty())
        .map(|part| {
            let (head, events) = part.split_once('\n').unwrap();
            let (verdict, title) = head.split_once(": ").unwrap();
            let (verdict, terms_text) = verdict.split_once(" (").unwrap_or((verdict, ")"));
            Scenario {
                title,
                violates: match verdict {
                    "holds" => Vec::new(),
                    ids => ids.split(' ').map(invariant).collect(),
                },
                terms: terms(terms_text.strip_suffix(')').unwrap()),
                history: scenario(events),
            }
        })
        .collect()
}

/// The invariant with this number.
pub(crate) fn invariant(id: &str) -> Invariant {
    let report = check(&History::default(), &Terms::default());
    let mut all = report.verdicts.iter().map(|verdict| verdict.invariant);
    all.find(|invariant| invariant.id() == id).unwrap_or_else(|| panic!("no invariant {id}"))
}

fn terms(words: &str) -> Terms {
    let mut terms = Terms::default();
    for word in words.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("lossy", _) => terms.lossy = true,
            ("overtakes", count) => terms.overtakes = Some(count.parse().unwrap()),
            ("entry", time) => terms.entry_life = Duration::from_nanos(ms(time)),
            ("under-way", time) => terms.under_way = Duration::from_nanos(ms(time)),
            ("stale", time) => terms.stale = Duration::from_nanos(ms(time)),
            ("ends-with-process", _) => terms.ends_with_process = true,
            ("set_back", _) => terms.set_back = true,
            ("kept-longer", time) => terms.kept_longer = Duration::from_nanos(ms(time)),
            ("poll", time) => terms.poll = Duration::from_nanos(ms(time)),
            ("lapse", time) => terms.lapse = Duration::from_nanos(ms(time)),
            ("cut", kind) => terms.cuts.push(kind.into()),
            ("unfenced", resource) => terms.unfenced.push(resource.into()),
            other => panic!("no term: {other:?}"),
        }
    }
    terms
}

/// Reads a history. The lock is `l` unless a word `lock=` names another.
pub(crate) fn scenario(text: &str) -> History {
    History::from_events(number(
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(event).collect(),
    ))
}

/// Gives the events of each process their sequence numbers, in the order of the list.
pub(crate) fn number(mut events: Vec<Event>) -> Vec<Event> {
    let mut next = std::collections::HashMap::<u32, u64>::new();
    for event in &mut events {
        let seq = next.entry(event.proc).or_default();
        event.seq = *seq;
        *seq += 1;
    }
    events
}

fn event(line: &str) -> Event {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [t, proc, attempt, ev, values @ ..] = &words[..] else { panic!("too short: {line}") };
    let values = Values(values);
    let lock = if ["crash", "stop", "cont", "stall", "storm", "calm", "probe", "contents"].contains(ev) {
        ""
    } else {
        values.word("lock").unwrap_or("l")
    };
    Event {
        run: 1,
        proc: proc[1..].parse().unwrap(),
        seq: 0,
        t: ms(t),
        task: 0,
        lock: lock.into(),
        attempt: id(attempt),
        what: what(ev, &values),
    }
}

fn what(ev: &str, values: &Values<'_>) -> What {
    let victim = || values.0[0].parse().unwrap();
    let err = || "error".to_owned();
    let kind = || values.0.first().copied().unwrap_or("storm").to_owned();
    let number = |at: usize| values.0[at].parse().unwrap();
    match ev {
        "inv" => What::AcqInv {
            mode: RecordedMode::try_from(values.0[0].to_owned()).unwrap(),
            limit: values.ms("limit"),
            within: values.word("within").map(id),
            retries: values.0.contains(&"retries"),
        },
        "part" => What::Part { single: values.0.contains(&"single") },
        "enq" => What::Enq,
        "ok" => What::AcqOk {
            token: values.0[0].parse().unwrap(),
            lineage: values.word("lineage").unwrap_or("0").into(),
            deadline: values.ms("D"),
            ttl: values.ms("ttl"),
            asked: values.ms("asked"),
            watched: values.0.contains(&"watched"),
            fixed: values.0.contains(&"fixed"),
        },
        "taken" => What::AcqTaken,
        "fail" => What::AcqFail { err: err() },
        "unknown" => What::AcqUnknown { err: err() },
        "cancel" => What::Cancel,
        "renewing" => What::RenewInv,
        "renewed" => What::RenewOk { deadline: values.ms("D").unwrap(), ttl: values.ms("ttl") },
        "lost" => What::Lost { err: err() },
        "check" => What::Check { valid: values.0[0] == "true", deadline: values.ms("D") },
        "rel" => What::RelInv { min_hold: values.ms("min_hold"), sure: None },
        "freed" => What::RelOk,
        "notheld" => What::RelNotheld,
        "relunknown" => What::RelUnknown { err: err() },
        "publish" => What::PublishInv { number: number(0) },
        "published" => What::PublishOk { number: number(0) },
        "seen" => What::Seen {
            observer: values.word("by").map_or(0, |observer| observer.parse().unwrap()),
            since: values.ms("since"),
            leader: id(values.0[0]),
            number: number(1),
            token: number(2),
            lineage: values.word("lineage").unwrap_or("0").into(),
        },
        "store" => What::StoreInv { keep: values.ms("keep").unwrap() },
        "notstored" => What::NotStored,
        "replay" => What::Replay { of: id(values.0[0]) },
        "crash" => What::Crash { victim: victim() },
        "stop" => What::Stop { victim: victim() },
        "cont" => What::Cont { victim: victim() },
        "stall" => What::Stall {
            until: values.ms("until").unwrap(),
            victim: values.word("of").map(|victim| victim.parse().unwrap()),
            of: "processor".into(),
        },
        "write" => What::WriteInv { to: values.0[0].into(), token: number(1), element: number(2) },
        "written" => What::WriteOk { element: number(0) },
        "fenced" => What::WriteFenced { element: number(0) },
        "contents" => {
            What::Contents { of: values.0[0].into(), elements: (1..values.0.len()).map(number).collect() }
        }
        "storm" => What::NemesisBegin { kind: kind() },
        "calm" => What::NemesisEnd { kind: kind() },
        "probe" => probe(values),
        "truth" => truth(values),
        other => panic!("no event: {other}"),
    }
}

fn probe(values: &Values<'_>) -> What {
    let phase = match values.0[0] {
        "start" => Phase::Start,
        "rest" => Phase::Rest,
        _ => Phase::Running,
    };
    let count =
        |word: &&str| word.split_once('=').map(|(kind, count)| (kind.to_owned(), count.parse().unwrap()));
    What::Probe { phase, found: values.0.iter().filter_map(count).collect() }
}

/// `truth until=<ms> [a<holder>=<expiry ms or ->]... [t<token>=<expiry ms or ->]... [waits=a<attempt>]...`
fn truth(values: &Values<'_>) -> What {
    let held = |word: &&str| {
        let (who, expires) = word.split_once('=')?;
        let (attempt, token) = match (who.get(..1)?, who.get(1..)?.parse().ok()?) {
            ("a", attempt) => (attempt, None),
            ("t", token) => (0, Some(token)),
            _ => return None,
        };
        Some(Held { attempt, token, expires: (expires != "-").then(|| ms(expires)) })
    };
    let waits = |word: &&str| word.strip_prefix("waits=").map(id);
    What::Truth {
        until: values.ms("until").unwrap(),
        holders: values.0.iter().filter_map(held).collect(),
        waiters: values.0.iter().filter_map(waits).collect(),
    }
}

struct Values<'a>(&'a [&'a str]);

impl<'a> Values<'a> {
    fn word(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    fn ms(&self, key: &str) -> Option<u64> {
        self.word(key).map(ms)
    }
}

fn id(word: &str) -> AttemptId {
    word.strip_prefix('a').map_or(0, |id| id.parse().unwrap())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the times of a scenario are small and positive"
)]
fn ms(word: &str) -> u64 {
    (word.parse::<f64>().unwrap() * 1e6) as u64
}

#[test]
fn modes_round_trip_through_text() {
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 2, limit: 7 }] {
        assert_eq!(RecordedMode::try_from(String::from(RecordedMode(mode))), Ok(RecordedMode(mode)));
    }
    for bad in ["", "x", "P:", "P:1", "P:1/", "P:/2", "P:-1/2"] {
        assert!(RecordedMode::try_from(bad.to_owned()).is_err(), "{bad}");
    }
}
