//! The view of a name, from the reports of its nodes.

use super::*;

/// The report of a node with this value of the lock key, its ttl in milliseconds, and this record of tokens.
fn report(value: &str, ttl_left: u64, token: &str) -> NodeReport {
    let ttl_left = Some(Duration::from_millis(ttl_left));
    NodeReport {
        value: value.to_owned(),
        ttl_left,
        token: super::parse_token_record(token),
        node_micros: 5_000_000,
        may_have_forgotten: false,
        waiters: Vec::new(),
    }
}

#[test]
fn a_majority_holds_and_a_minority_does_not() {
    let (name, id) = (Name::new("a").unwrap(), "0123456789abcdef0123456789abcdef");
    let shown = |nodes: Vec<NodeReport>| view_of(&name, "lock:a".to_owned(), nodes, 3);
    let our_report =
        |ttl_left| report(&format!("{id}-3"), ttl_left, &format!("18 17 {id} - c 1000000 me at home"));
    let view = shown(vec![our_report(500), our_report(900), report("other", 70, "")]);
    let [holder] = &view.holders[..] else { panic!("{view:?}") };
    assert_eq!((holder.id.as_str(), holder.token, holder.foreign), (id, Some(17), false));
    assert_eq!((holder.owner.as_str(), holder.held), ("me at home", Some(Duration::from_secs(4))));
    assert_eq!(holder.remaining, Some(Duration::from_millis(450)));
    assert!(shown(vec![our_report(500), report("other", 70, ""), report("", 0, "")]).holders.is_empty());
    let view = shown(vec![report("x", 500, ""), report("x", 900, ""), our_report(70)]);
    assert!(view.holders[0].foreign && view.holders[0].token.is_none(), "{view:?}");
    // A node forgot the lock or does not answer: until the lease ends no other claim can be granted the name.
    let forgot = NodeReport { may_have_forgotten: true, ..report("", 0, "") };
    assert_eq!(shown(vec![our_report(500), forgot, report("", 0, "")]).holders.len(), 1);
    assert_eq!(shown(vec![our_report(500), report("", 0, "")]).holders.len(), 1);
    assert!(
        shown(vec![report(&format!("{id}-3"), 500, ""), report("", 0, "")]).holders.is_empty(),
        "not granted yet"
    );
    // An attempt whose answers came too late wrote a token of its own; the token of the hold is the one on a
    // majority.
    let later = report(&format!("{id}-4"), 900, &format!("28 27 {id} - c 2000000 me at home"));
    for nodes in [[0, 1, 1], [1, 0, 1], [1, 1, 0]] {
        let node = |kind: usize| {
            if kind == 0 {
                NodeReport { token: later.token.clone(), ..report(&later.value, 900, "") }
            } else {
                our_report(900)
            }
        };
        assert_eq!(shown(nodes.map(node).into()).holders[0].token, Some(17));
    }
    let view = shown(vec![report(&format!("broken-{id}"), 500, ""), our_report(900), our_report(800)]);
    assert_eq!(view.holders[0].remaining, Some(Duration::from_millis(720)));
    assert!(!view.holders[0].broken, "a majority renews it");
    let broken = || report(&format!("broken-{id}"), 500, &format!("18 17 {id} b c 1000000 me at home"));
    let view = shown(vec![broken(), our_report(900), broken()]);
    assert!(view.holders[0].broken && view.holders[0].owner == "me at home", "{view:?}");
}

/// Three nodes report: two have the lock of a hold. The third has the lock and the guessed token of a claim that
/// was refused.
#[test]
fn a_refused_claim_does_not_hide_the_hold() {
    let name = Name::new("a").unwrap();
    let shown = |nodes: Vec<NodeReport>| {
        let view = view_of(&name, "lock:a".to_owned(), nodes, 3);
        view.holders.iter().filter_map(|holder| holder.token).collect::<Vec<_>>()
    };
    let (low, high) = ("0123456789abcdef0123456789abcdef", "f123456789abcdef0123456789abcdef");
    for (hold, claim) in [(low, high), (high, low)] {
        let held = || report(&format!("{hold}-3"), 640, &format!("17 17 {hold} - c 1000000 me"));
        let refused = || report(&format!("{claim}-9"), 992, &format!("27 27 {claim} - c 2000000 you"));
        let restarted = |report: NodeReport| NodeReport { may_have_forgotten: true, ..report };
        assert_eq!(shown(vec![held(), refused(), held()]), [17], "a majority is sure");
        assert_eq!(shown(vec![held(), refused()]), [17, 27], "the second node of the hold is away");
        assert_eq!(
            shown(vec![held(), refused(), restarted(report("", 0, ""))]),
            [17, 27],
            "it has forgotten the hold"
        );
        assert_eq!(
            shown(vec![held(), refused(), restarted(refused())]),
            [17, 27],
            "and has no vote for the claim"
        );
        assert_eq!(
            shown(vec![held(), refused(), restarted(held())]),
            [17, 27],
            "nor for the hold, set again"
        );
        assert_eq!(shown(vec![held(), held(), restarted(refused())]), [17]);
    }
    let foreign = || NodeReport { may_have_forgotten: true, ..report("x", 500, "") };
    let view = view_of(&name, "lock:a".to_owned(), vec![foreign(), foreign()], 3);
    assert!(view.holders[0].foreign, "others know no quarantine: {view:?}");
}
