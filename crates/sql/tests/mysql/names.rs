//! Names that many column types treat as equal.

use leasehold_core::Inspect;

use crate::rig::{Rig, claim, claim_and_hold, release_hold};

/// F62: names that differ in case, padding, accents, Unicode normalisation, width, or only in their last byte.
#[tokio::test]
async fn similar_names_are_different_locks() {
    let rig = Rig::new();
    let (one, other) = (rig.engine(), rig.engine());
    let long = |end: &str| format!("{}{end}", "x".repeat(512 - end.len()));
    let (longest, longer) = (long("a"), long("A"));
    let names = [
        "a",
        "A",
        "a ",
        "a  ",
        " a",
        "ä",
        "a\u{308}",
        "á",
        "\u{ff41}",
        "ß",
        "ss",
        "SS",
        "i",
        "ı",
        "İ",
        "\u{1f512}",
        "\u{1f513}",
        "a\\",
        "a'",
        "a\"",
        "a%",
        "a_",
        &longest,
        &longer,
        &long(" "),
        &long("  ")[..511],
    ];
    let mut held = Vec::new();
    for name in names {
        let claim = claim(name);
        let grant = claim_and_hold(&*one, &claim).await;
        held.push((claim, grant));
    }
    let mut listed: Vec<String> =
        other.list("").await.unwrap().into_iter().map(|view| view.name.as_str().to_owned()).collect();
    let mut sorted = names.map(str::to_owned);
    sorted.sort();
    listed.sort();
    assert_eq!(listed, sorted);
    for (claim, grant) in &held {
        let view = other.show(&claim.name).await.unwrap();
        assert_eq!(view.holders[0].id, claim.id.to_string(), "{}", claim.name);
        release_hold(&*one, claim, grant).await;
    }
    assert_eq!(rig.remaining_rows(), Vec::<String>::new());
}

/// The owner of a claim is stored unchanged.
#[tokio::test]
async fn values_are_not_executed_as_sql() {
    let rig = Rig::new();
    let engine = rig.engine();
    for odd in ["'; DROP TABLE leasehold_lock; --", "\\", "\\'", ":now", "\u{1f512} :name", "", "a\u{308}  "]
    {
        let claim = leasehold_core::Claim { owner: odd.into(), ..claim("a") };
        let grant = claim_and_hold(&*engine, &claim).await;
        assert_eq!(engine.show(&claim.name).await.unwrap().holders[0].owner, odd);
        release_hold(&*engine, &claim, &grant).await;
        let shared = leasehold_core::Claim { mode: leasehold_core::Mode::Shared, ..claim };
        let shared = leasehold_core::Claim { id: crate::rig::claim("a").id, ..shared };
        let grant = claim_and_hold(&*engine, &shared).await;
        assert_eq!(engine.show(&shared.name).await.unwrap().holders[0].owner, odd);
        release_hold(&*engine, &shared, &grant).await;
    }
}
