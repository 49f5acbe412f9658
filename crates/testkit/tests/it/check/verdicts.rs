//! Hand-made histories: each bad one violates exactly one invariant, each good one none.

use leasehold_testkit::check::{Invariant, Terms, check};

use super::tale::tale;

#[track_caller]
fn judge(invariant: Invariant, good: &[&str], bad: &[&str]) {
    judge_with(&Terms::default(), invariant, good, bad);
}

#[track_caller]
fn judge_with(terms: &Terms, invariant: Invariant, good: &[&str], bad: &[&str]) {
    assert!(good.len() >= 3 && bad.len() >= 3, "three of each");
    for text in good {
        let report = check(&tale(text), terms);
        assert!(report.holds(), "this is good:\n{text}\n{report}");
        let checked = report.verdict(invariant).unwrap().checked;
        assert!(checked > 0, "{invariant} was not checked at all:\n{text}");
    }
    for text in bad {
        let report = check(&tale(text), terms);
        assert_eq!(report.violated(), [invariant], "this is bad:\n{text}\n{report}");
        let example = &report.verdict(invariant).unwrap().examples[0];
        assert!(!example.excerpt.is_empty() && !example.what.is_empty(), "{report}");
    }
}

#[test]
fn exclusion() {
    let good = [
        // One after the other, the second waiting; ends and begins at one instant.
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=90 ttl=100
         5 p2 a2 inv X
         20 p1 a1 rel
         20 p2 a2 ok 2 D=110 ttl=100
         21 p1 a1 freed
         30 p2 a2 rel
         31 p2 a2 freed",
        // The first lapses: its user stopped believing at the deadline.
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=90 ttl=100
         2 p2 a2 inv X
         101 p2 a2 ok 2 D=190 ttl=100
         120 p2 a2 rel
         121 p2 a2 freed
         130 p1 a1 rel
         131 p1 a1 notheld",
        // Readers share, a lost hold and a killed process end their beliefs.
        "0 p1 a1 inv S
         1 p2 a2 inv S
         2 p1 a1 ok 1 D=90 ttl=100
         3 p2 a2 ok 2 D=90 ttl=100
         10 p1 a1 lost
         11 p9 - crash 2
         12 p3 a3 inv X
         13 p3 a3 ok 3 D=100 ttl=100
         14 p3 a3 rel
         15 p3 a3 freed",
        // Permits within the limit, and another limit once all are gone.
        "0 p1 a1 inv P:2/3
         1 p1 a1 ok 1
         2 p2 a2 inv P:1/3
         3 p2 a2 ok 2
         4 p1 a1 rel
         5 p1 a1 freed
         6 p2 a2 rel
         7 p2 a2 freed
         8 p1 a3 inv P:4/4
         9 p1 a3 ok 3
         10 p1 a3 rel
         11 p1 a3 freed",
        // A hold entered again by its owner; two locks do not meet.
        "0 p1 a1 inv X
         1 p1 a1 ok 1
         2 p1 a2 inv X within=a1
         3 p1 a2 ok 1
         4 p2 a3 inv X lock=m
         5 p2 a3 ok 9 lock=m
         6 p1 a2 rel
         7 p1 a2 freed
         8 p1 a1 rel
         9 p1 a1 freed",
    ];
    let bad = [
        // The plain one.
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=90 ttl=100
         2 p2 a2 inv X
         50 p2 a2 ok 2 D=140 ttl=100
         60 p1 a1 rel
         61 p1 a1 freed",
        // A writer beside a reader.
        "0 p1 a1 inv S
         1 p1 a1 ok 1 D=90 ttl=100
         2 p2 a2 inv X
         50 p2 a2 ok 2 D=140 ttl=100",
        // One permit too many.
        "0 p1 a1 inv P:2/3
         1 p1 a1 ok 1
         2 p2 a2 inv P:2/3
         3 p2 a2 ok 2",
        // A permit beside a lock, and permits of two limits.
        "0 p1 a1 inv S
         1 p1 a1 ok 1
         2 p2 a2 inv P:1/3
         3 p2 a2 ok 2",
        "0 p1 a1 inv P:1/3
         1 p1 a1 ok 1
         2 p2 a2 inv P:1/4
         3 p2 a2 ok 2",
        // The renewal made the first valid until after the second began.
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=90 ttl=100
         40 p1 a1 renewed D=130
         41 p2 a2 inv X
         101 p2 a2 ok 2 D=190 ttl=100",
        // The hold entered again outlives the first, and somebody else gets the lock.
        "0 p1 a1 inv X
         1 p1 a1 ok 1
         2 p1 a2 inv X within=a1
         3 p1 a2 ok 1
         4 p1 a1 rel
         5 p1 a1 freed
         6 p2 a3 inv X
         7 p2 a3 ok 2
         8 p1 a2 rel",
    ];
    judge(Invariant::Exclusion, &good, &bad);
}

#[test]
fn the_width_of_an_overlap_is_told_with_its_pair() {
    let report = check(
        &tale(
            "0 p1 a1 inv X
             1 p1 a1 ok 1 D=90 ttl=100
             2 p2 a2 inv X
             50 p2 a2 ok 2 D=140 ttl=100
             62.5 p1 a1 rel
             63 p1 a1 freed",
        ),
        &Terms::default(),
    );
    let example = &report.verdict(Invariant::Exclusion).unwrap().examples[0];
    assert!(example.what.contains("overlap for 12.500 ms"), "{report}");
    assert!(example.what.contains("token 1") && example.what.contains("token 2"), "{report}");
    let attempts: Vec<_> = example.excerpt.iter().map(|event| event.attempt).collect();
    assert_eq!(attempts, [1, 1, 2, 2, 1, 1], "{report}");
    assert!(report.to_string().contains("(+50.000 ms) proc 2"), "{report}");
}

#[test]
fn deadlines() {
    let good = [
        // A try: counted from its call.
        "0 p1 a1 inv X limit=0
         5 p1 a1 ok 1 D=99 ttl=100",
        // A wait: counted from its answer at the latest, or from the request where it is known.
        "0 p1 a1 inv X
         200 p1 a1 ok 1 D=298 ttl=100
         210 p1 a1 renewing
         220 p1 a1 renewed D=308 ttl=100",
        "0 p1 a1 inv X
         200 p1 a1 ok 1 D=289 ttl=100 asked=190",
        // The server knows it for longer.
        "0 p1 a1 inv X
         5 p1 a1 ok 1 D=98 ttl=100
         10 p9 - truth until=11 a1=103
         20 p1 a1 rel
         21 p9 - truth until=22 a1=103
         23 p1 a1 freed",
        // Nobody believes while the server is asked; an answer that came too late is not believed.
        "0 p1 a1 inv X
         5 p1 a1 ok 1 D=98 ttl=100
         98 p9 - truth until=99
         100 p2 a2 inv X
         300 p2 a2 ok 2 D=199 ttl=100 asked=100
         301 p9 - truth until=302",
    ];
    let bad = [
        // Counted from the answer.
        "0 p1 a1 inv X limit=0
         50 p1 a1 ok 1 D=149 ttl=100",
        // Without leaving the drift.
        "0 p1 a1 inv X
         200 p1 a1 ok 1 D=301 ttl=100",
        // A renewal counted from its answer.
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100
         30 p1 a1 renewing
         60 p1 a1 renewed D=158 ttl=100",
        // The request that was acknowledged is known, and earlier.
        "0 p1 a1 inv X
         200 p1 a1 ok 1 D=298 ttl=100 asked=190",
        // Later than the server's own expiry.
        "0 p1 a1 inv X
         5 p1 a1 ok 1 D=98 ttl=100
         10 p9 - truth until=11 a1=90",
        // The server knows nothing of it.
        "0 p1 a1 inv X
         5 p1 a1 ok 1 D=98 ttl=100
         10 p9 - truth until=11",
    ];
    judge(Invariant::Deadlines, &good, &bad);
}

#[test]
fn tokens() {
    let two = |first: u64, second: u64, mode: &str| {
        format!(
            "0 p1 a1 inv {mode}
             1 p1 a1 ok {first}
             2 p1 a1 rel
             3 p1 a1 freed
             4 p2 a2 inv {mode}
             5 p2 a2 ok {second}
             6 p2 a2 rel
             7 p2 a2 freed"
        )
    };
    let good = [
        two(1, 2, "X"),
        two(1, 1000, "X"),
        // Readers of one hold share a token; permits only identify.
        two(7, 7, "S"),
        two(9, 8, "P:1/3"),
        two(9, 8, "S"),
        // Another lineage counts anew.
        two(5, 1, "X").replace("ok 1", "ok 1 lineage=1"),
        // The answer of the first came after its deadline: it is older than it seems.
        "0 p1 a1 inv X
         1 p2 a2 inv X
         200 p2 a2 ok 2 D=290 ttl=100
         210 p2 a2 rel
         211 p2 a2 freed
         220 p1 a1 ok 1 D=98 ttl=100"
            .to_owned(),
        // Entered again.
        "0 p1 a1 inv X
         1 p1 a1 ok 4
         2 p1 a2 inv X within=a1
         3 p1 a2 ok 4"
            .to_owned(),
    ];
    let bad = [
        two(2, 1, "X"),
        two(2, 2, "X"),
        two(3, 3, "P:1/3"),
        // A reader between two writers.
        two(5, 4, "X").replace("a2 inv X", "a2 inv S"),
        two(5, 4, "X").replace("a1 inv X", "a1 inv S"),
        // Entered again with another token.
        "0 p1 a1 inv X
         1 p1 a1 ok 4
         2 p1 a2 inv X within=a1
         3 p1 a2 ok 5"
            .to_owned(),
        // Not next to each other.
        format!(
            "{}
             8 p1 a3 inv X
             9 p1 a3 ok 4",
            two(5, 6, "X")
        ),
    ];
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    judge(Invariant::Tokens, &good, &bad);
}

#[test]
fn lossy_runs_order_only_what_followed() {
    let mut lossy = Terms::default();
    lossy.lossy = true;
    let crossing = "0 p1 a1 inv X
         1 p2 a2 inv X
         5 p2 a2 ok 2 D=98 ttl=100
         6 p2 a2 rel
         7 p2 a2 freed
         9 p1 a1 ok 1 D=98 ttl=100";
    assert_eq!(check(&tale(crossing), &Terms::default()).violated()[0], Invariant::Tokens);
    assert!(check(&tale(crossing), &lossy).holds());
    let following = crossing.replace("0 p1 a1 inv X", "8 p1 a1 inv X");
    assert_eq!(check(&tale(&following), &lossy).violated(), [Invariant::Tokens]);
}

#[test]
fn leaks() {
    let good = [
        "0 p1 - probe start keys=2 fds=5
         9 p1 - probe rest keys=2 fds=5",
        "0 p1 - probe start keys=2
         5 p1 - probe running keys=50
         9 p1 - probe rest keys=0 rows=0",
        "0 p1 - probe start fds=5
         1 p2 - probe start fds=9
         8 p1 - probe rest fds=9
         9 p1 - probe rest fds=5
         9 p2 - probe rest fds=9",
    ];
    let bad = [
        "0 p1 - probe start keys=2 fds=5
         9 p1 - probe rest keys=3 fds=5",
        "0 p1 - probe start fds=5
         9 p1 - probe rest fds=5 rows=1",
        "0 p1 - probe start fds=5
         1 p2 - probe start fds=9
         9 p1 - probe rest fds=9
         9 p2 - probe rest fds=9",
        "0 p1 - probe start keys=2",
        "9 p1 - probe rest keys=2",
    ];
    judge(Invariant::Leaks, &good, &bad);
}

#[test]
fn loss() {
    let good = [
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100 watched fixed
         50 p1 a1 check true
         97 p1 a1 check true
         98 p1 a1 check false
         99 p1 a1 lost
         120 p1 a1 check false
         200 p1 a1 rel
         201 p1 a1 notheld",
        // Renewed meanwhile, as the guard told.
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100 watched
         150 p1 a1 check true D=190
         180 p1 a1 rel
         181 p1 a1 freed",
        // Stopped over the deadline; told soon after it ran again.
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100 watched fixed
         90 p9 - stop 1
         400 p9 - cont 1
         401 p1 a1 check false
         430 p1 a1 lost
         500 p1 a1 rel
         501 p1 a1 notheld",
        // Released just after the deadline, or nobody watches.
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100 watched fixed
         50 p1 a1 check true
         110 p1 a1 rel
         300 p1 a1 notheld",
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100
         100 p1 a1 check false
         400 p1 a1 rel
         401 p1 a1 notheld",
    ];
    let bad = [
        // Valid after the deadline; in the first instruction after a pause.
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100
         101 p1 a1 check true",
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100
         90 p9 - stop 1
         400 p9 - cont 1
         400 p1 a1 check true D=98",
        // Not sticky.
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100
         50 p1 a1 check false
         51 p1 a1 check true",
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100
         50 p1 a1 lost
         51 p1 a1 check true",
        // Told too late, or never.
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100 watched fixed
         160 p1 a1 lost
         200 p1 a1 rel
         201 p1 a1 notheld",
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100 watched
         50 p1 a1 check false
         200 p1 a1 rel
         201 p1 a1 notheld",
    ];
    // The last one releases a hold within its deadline that it was denied: that it was not held is no surprise to it.
    let (last, others) = bad.split_last().unwrap();
    judge(Invariant::Loss, &good, others);
    let report = check(&tale(last), &Terms::default());
    assert!(report.violations(Invariant::Loss) == 1, "{report}");
}

#[test]
fn wake_ups() {
    let handed = |free: u64, granted: u64| {
        format!(
            "0 p1 a1 inv X
             1 p1 a1 ok 1 D=5000 ttl=9000
             2 p2 a2 inv X
             {free} p1 a1 rel
             {free} p1 a1 freed
             {granted} p2 a2 ok 2
             {} p2 a2 rel
             {} p2 a2 freed",
            granted + 1,
            granted + 2
        )
    };
    let good = [
        handed(100, 101),
        handed(100, 340),
        // Nobody waits.
        handed(100, 900).replace("2 p2 a2 inv X", "890 p2 a2 inv X"),
        // A try does not wait; the waiter gave up.
        "0 p1 a1 inv X limit=0
         900 p1 a1 fail
         901 p1 a2 inv X
         1000 p1 a2 fail"
            .to_owned(),
        // The holder was killed: its lease has to run out.
        handed(100, 900)
            .replace("100 p1 a1 rel", "100 p9 - crash 1")
            .replace("100 p1 a1 freed", "101 p9 - calm")
            .replace("D=5000 ttl=9000", "D=200 ttl=600"),
        // The name is kept; the system is disturbed.
        handed(100, 1200).replace("a1 rel", "a1 rel keep=1000"),
        handed(100, 1200).replace("2 p2 a2 inv X", "2 p2 a2 inv X\n50 p9 - storm\n1150 p9 - calm"),
    ];
    let bad = [
        handed(100, 351),
        // Never.
        handed(100, 900)
            .replace("900 p2 a2 ok 2", "900 p2 a2 fail")
            .replace("901 p2 a2 rel", "")
            .replace("902 p2 a2 freed", ""),
        // Free from the start.
        "0 p1 a1 inv X
         300 p1 a1 ok 1"
            .to_owned(),
        // Its lease ran out long before.
        handed(100, 1300)
            .replace("100 p1 a1 rel", "100 p9 - crash 1")
            .replace("100 p1 a1 freed", "101 p9 - calm")
            .replace("D=5000 ttl=9000", "D=200 ttl=600"),
    ];
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    judge(Invariant::WakeUps, &good, &bad);
}

#[test]
fn order() {
    let three = |second: u64, third: u64| {
        format!(
            "0 p1 a1 inv X
             1 p1 a1 ok 1
             2 p2 a2 inv X
             3 p2 a2 enq
             4 p3 a3 inv X
             5 p3 a3 enq
             6 p1 a1 rel
             7 p1 a1 freed
             {0}8 p2 a2 ok {second}
             {0}9 p2 a2 rel
             {0}9 p2 a2 freed
             {1}8 p3 a3 ok {third}
             {1}9 p3 a3 rel
             {1}9 p3 a3 freed",
            second - 1,
            third - 1
        )
    };
    let good = [
        three(2, 3),
        // The second asked before the first was known to stand in line.
        three(3, 2).replace("3 p2 a2 enq", "5 p2 a2 enq"),
        // The first gave up.
        three(2, 3)
            .replace("18 p2 a2 ok 2", "18 p2 a2 fail")
            .replace("19 p2 a2 rel", "")
            .replace("19 p2 a2 freed", ""),
    ];
    let bad = [three(3, 2), three(4, 2), three(3, 2).replace("5 p3 a3 enq", "")];
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    let mut fifo = Terms::default();
    fifo.overtakes = Some(0);
    judge_with(&fifo, Invariant::Order, &good, &bad);
    fifo.overtakes = Some(1);
    assert!(check(&tale(bad[0]), &fifo).holds(), "one is allowed");
    assert!(check(&tale(bad[0]), &Terms::default()).holds(), "none is promised");
}

#[test]
fn releases() {
    let ended = |how: &str| {
        format!(
            "0 p1 a1 inv X
             1 p1 a1 ok 1 D=98 ttl=100
             50 p1 a1 rel
             51 p1 a1 {how}"
        )
    };
    let good = [
        ended("freed"),
        ended("relunknown"),
        ended("notheld").replace("51 ", "99 "),
        ended("notheld").replace("50 p1", "40 p1 a1 lost\n50 p1"),
        ended("freed") + "\n60 p9 - truth until=61",
        // Kept: the server knows it still.
        ended("freed").replace("a1 rel", "a1 rel keep=500") + "\n60 p9 - truth until=61 a1=550",
    ];
    let bad = [
        ended("notheld"),
        ended("freed") + "\n60 p9 - truth until=61 a1=101",
        ended("freed") + "\n60 p9 - truth until=61 waits=a1",
        // It lapsed, somebody else got the lock, and yet it was "freed".
        "0 p1 a1 inv X
         1 p1 a1 ok 1 D=98 ttl=100
         2 p2 a2 inv X
         110 p2 a2 ok 2 D=208 ttl=100
         120 p2 a2 rel
         121 p2 a2 freed
         150 p1 a1 rel
         151 p1 a1 freed"
            .to_owned(),
    ];
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    judge(Invariant::Releases, &good, &bad);
}

#[test]
fn cancels() {
    let cancelled = |truth: &str| {
        format!(
            "0 p1 a1 inv X
             100 p1 a1 cancel
             {truth}"
        )
    };
    let good = [
        cancelled("900 p9 - truth until=901 waits=a1"),
        cancelled("1099 p9 - truth until=1101 a1=5000"),
        // It was killed before it could clean up; the server was out of reach.
        cancelled("150 p9 - crash 1\n2000 p9 - truth until=2001 a1=5000"),
        cancelled("150 p9 - storm\n1500 p9 - calm\n2000 p9 - truth until=2001 waits=a1"),
    ];
    let bad = [
        cancelled("1200 p9 - truth until=1201 waits=a1"),
        cancelled("1200 p9 - truth until=1201 a1=5000"),
        cancelled("1200 p9 - truth until=1201 a1=5000").replace("cancel", "unknown"),
        // Certainly failed: nothing may be there at once.
        cancelled("101 p9 - truth until=102 waits=a1").replace("cancel", "fail"),
    ];
    // A lock that is free beside a waiter for 100 ms is no matter here.
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    judge(Invariant::Cancels, &good, &bad);
}

#[test]
fn limits() {
    let held = "0 p2 a9 inv X\n1 p2 a9 ok 1\n";
    let waited = |until: u64, how: &str| format!("{held}10 p1 a1 inv X limit=500\n{until} p1 a1 {how}");
    let good = [
        waited(510, "fail"),
        waited(609, "fail"),
        waited(300, "cancel"),
        waited(3000, "fail").replace("10 p1", "5 p9 - stop 1\n2950 p9 - cont 1\n10 p1"),
        format!("{held}10 p1 a1 inv X limit=500\n700 p9 - probe running"),
    ];
    let bad = [
        waited(611, "fail"),
        waited(3000, "unknown"),
        format!("{held}10 p1 a1 inv X limit=500\n5000 p9 - probe running"),
    ];
    let (open, good) = good.split_last().unwrap();
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    judge(Invariant::Limits, &good, &bad);
    assert!(
        !check(&tale(open), &Terms::default()).holds(),
        "an acquire that is still open is too late as well"
    );
}

#[test]
fn shape() {
    let good = [
        "0 p1 a1 inv X\n1 p1 a1 ok 1\n2 p1 a1 rel\n3 p1 a1 freed",
        "0 p1 a1 inv X\n1 p1 a1 fail",
        "0 p1 a1 inv X\n1 p1 a1 ok 1\n2 p9 - crash 1",
    ];
    let bad = [
        "1 p1 a1 ok 1",
        "0 p1 a1 inv X\n1 p1 a1 ok 1\n1 p1 a1 ok 1",
        "0 p1 a1 inv X\n1 p1 a1 fail\n1 p1 a1 cancel",
        "0 p1 a1 inv X\n1 p1 a1 fail\n2 p1 a1 rel",
        "0 p1 a1 inv X\n1 p1 a1 ok 1\n2 p1 a1 freed",
        "0 p1 a1 inv X\n1 p1 a1 ok 1\n2 p1 a1 rel\n3 p1 a1 freed\n4 p1 a1 notheld",
        "0 p1 - fail",
    ];
    judge(Invariant::Shape, &good, &bad);
}

#[test]
fn a_missing_record_is_found() {
    let history = tale("0 p1 a1 inv X\n1 p1 a1 ok 1\n2 p1 a1 rel\n3 p1 a1 freed");
    let mut events = history.events().to_vec();
    events.remove(1);
    let holes = leasehold_testkit::history::History::from_events(events);
    assert!(check(&holes, &Terms::default()).violations(Invariant::Shape) > 0);
}
