//! Names are data: two different names never share a lock.

use leasehold_core::{Mode, Name};

use super::{
    Stored,
    case::{Case, Outcome, case, ensure, needs_stored_claims},
    fixture::Fixture,
};

pub(super) const CASES: &[Case] = &[
    case!(odd_names_do_not_collide),
    case!(the_longest_names_do_not_collide),
    case!(odd_names_are_shown_and_listed, skip = needs_stored_claims),
];

/// Suffixes that a store, path, pattern or script may interpret.
pub(super) const ODD: &[&str] = &[
    "",
    "/",
    "/b",
    "//b",
    "/b/",
    "/./b",
    "/../b",
    ".",
    "..",
    "...",
    ".lock",
    "\\",
    "\\b",
    "%",
    "%2F",
    "%2Fb",
    "%25",
    "_",
    "*",
    "?",
    "[a]",
    "}b{c",
    "{b}",
    "{}",
    "'",
    "''",
    "\"",
    "`",
    ";",
    "; DROP TABLE x",
    "$1",
    "$(b)",
    ":",
    "::",
    "~",
    "-",
    "--",
    " ",
    "  ",
    " b",
    "b ",
    "B",
    "b",
    "bb",
    "ä",
    "a\u{308}",
    "Ä",
    "ß",
    "ss",
    "✓",
    "日本",
    "\u{1F512}",
    "\u{200B}",
    "\u{FEFF}",
    "\u{202E}",
    "é",
    "e\u{301}",
    "#",
    "&",
    "=",
    "@",
    "!",
    "^",
    "|",
    "<b>",
    ",",
    "+",
    "%00",
    "\\0",
    "\\x00",
    "null",
    "lock:",
];
/// Complete names that code would interpret if it treated a name as a path.
const BARE: &[&str] = &[".", "..", "/", "//", "../..", "../../etc/passwd", "~", "*", "%", " ", "-", "lock"];

async fn odd_names_do_not_collide(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let names: Vec<Name> = odd_names(fixture);
    for name in &names {
        let claim = fixture.try_claim(name, Mode::Exclusive);
        client_a.acquire(&claim).await?;
    }
    for name in &names {
        client_b.expect_taken(name).await?;
    }
    Ok(())
}

async fn the_longest_names_do_not_collide(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let names = longest_names(fixture)?;
    for name in &names {
        client_a.acquire(&fixture.try_claim(name, Mode::Exclusive)).await?;
    }
    for name in &names {
        client_b.expect_taken(name).await?;
    }
    Ok(())
}

/// Names that differ only in their last character, with characters that an encoding may make longer.
pub(super) fn longest_names(fixture: &Fixture<'_>) -> Outcome<Vec<Name>> {
    let base = fixture.name("");
    let base = base.as_str();
    let mut names = Vec::new();
    for (fill, ends) in [("x", ["a", "b"]), ("/", ["a", "b"]), ("ä", ["é", "è"]), ("%", ["1", "2"])] {
        for end in ends {
            let room = fixture.longest_name() - base.len() - end.len();
            let text = format!("{base}{}{end}", fill.repeat(room / fill.len()));
            names.push(Name::new(&text).map_err(|error| format!("{text:?}: {error}"))?);
            let shorter = format!("{base}{}{end}", fill.repeat(room / fill.len() / 2));
            names.push(Name::new(&shorter).map_err(|error| format!("{shorter:?}: {error}"))?);
        }
    }
    Ok(names)
}

async fn odd_names_are_shown_and_listed(fixture: &Fixture<'_>) -> Outcome {
    fixture.need_stored(Stored::Everything)?;
    let client = fixture.client().await;
    let mut names = odd_names(fixture);
    for name in &names {
        let claim = fixture.try_claim(name, Mode::Exclusive);
        client.acquire(&claim).await?;
        let view = client.engine.show(name).await.map_err(|error| format!("show {name:?}: {error:?}"))?;
        let ids: Vec<_> = view.holders.iter().map(|holder| holder.id.clone()).collect();
        ensure!(ids == [claim.id.to_string()], "{name:?} is held by {}, shown is {ids:?}", claim.id);
        ensure!(view.name == *name, "{name:?} is shown as {:?}", view.name);
    }
    names.retain(|name| name.as_str().starts_with(fixture.name("").as_str()));
    names.sort();
    let listed =
        client.engine.list(fixture.name("").as_str()).await.map_err(|error| format!("list: {error:?}"))?;
    let listed: Vec<_> = listed.into_iter().map(|view| view.name).collect();
    ensure!(listed == names, "held are {names:?}, listed are {listed:?}");
    // A prefix is text, not a pattern.
    for (pattern, expected) in [("%", 5), ("_", 1), ("*", 1), ("/", 6)] {
        let listed = client
            .engine
            .list(fixture.name(pattern).as_str())
            .await
            .map_err(|error| format!("list: {error:?}"))?;
        let expected: Vec<_> = names
            .iter()
            .filter(|name| name.as_str().starts_with(fixture.name(pattern).as_str()))
            .zip(0..expected)
            .collect();
        ensure!(listed.len() == expected.len(), "the prefix {pattern:?} lists {listed:?}");
    }
    Ok(())
}

fn odd_names(fixture: &Fixture<'_>) -> Vec<Name> {
    let bare = BARE.iter().map(|text| Name::new(text).expect("odd, but legal"));
    ODD.iter().map(|suffix| fixture.name(suffix)).chain(bare).filter(|name| fixture.accepts(name)).collect()
}
