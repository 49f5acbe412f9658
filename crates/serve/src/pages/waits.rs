//! Who waits for whom, over all engines, with deadlocks and long waits.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use leasehold_ops::waits::{Block, Finding, Party, blocks};
use serde_json::{Value, json};

use super::{or_dash, page as whole_page};
use crate::{
    guard::Identity,
    html::{Html, link},
    picture::{self, Locked},
    state::Shared,
    time::{clock, millis, short},
};

/// How many waits the list has.
const SHOWN: usize = 500;

/// What the last search for deadlocks and long waits found, in one line.
pub(crate) struct Summary {
    text: String,
    /// Whether there is one. The text says so, too.
    is_wrong: bool,
}

impl Summary {
    pub(crate) fn json(&self) -> Value {
        json!({ "text": self.text, "is_wrong": self.is_wrong })
    }
}

pub(crate) fn summary(shared: &Shared) -> Summary {
    if let Some(waits) = shared.known_waits() {
        let away = match waits.away.len() {
            0 => String::new(),
            1 => format!("; not known of {}, which is away", waits.away[0]),
            _ => format!("; not known of {}, which are away", waits.away.join(", ")),
        };
        return Summary { text: counts(&waits.findings) + &away, is_wrong: !waits.findings.is_empty() };
    }
    let search = shared.search();
    let text = match search.at {
        None => "Deadlocks and long waits are not known yet".to_owned(),
        Some(at) => {
            let found = counts(&search.findings);
            format!("{found} at {}; not known since then, because no engine answers", clock(at))
        }
    };
    Summary { text, is_wrong: !search.findings.is_empty() }
}

/// How many deadlocks and long waits there are.
fn counts(findings: &[Finding]) -> String {
    let is_deadlock = |finding: &&Finding| matches!(finding, Finding::Deadlock(_));
    let deadlocks = findings.iter().filter(is_deadlock).count();
    let long_waits = findings.len() - deadlocks;
    let number = |count: usize, one: &str| match count {
        0 => format!("no {one}"),
        1 => format!("1 {one}"),
        more => format!("{more} {one}s"),
    };
    let text = format!("{} and {}", number(deadlocks, "deadlock"), number(long_waits, "long wait"));
    if deadlocks == 0 { text.replacen("no", "No", 1) } else { text }
}

/// The summary as the first page shows it, with a link to the details.
pub(super) fn line(summary: &Summary) -> Html {
    let mut html = Html::new();
    html.raw(if summary.is_wrong { "<p id=\"waits\" class=\"warning\">" } else { "<p id=\"waits\">" });
    html.raw("<a href=\"/waits\">").text(&summary.text).raw("</a></p>");
    html
}

pub(crate) async fn page(
    State(shared): State<Arc<Shared>>,
    Extension(identity): Extension<Identity>,
) -> Response {
    let looks: Vec<_> = shared.engines.iter().map(|engine| engine.look()).collect();
    let each = shared.engines.iter().zip(&looks);
    let all: Vec<_> = each.map(|(engine, look)| engine.wait_look(look)).collect();
    let (blocks, known) = (blocks(&all), shared.known_waits());
    let mut html = Html::new();
    html.raw("<p>").text(&summary(&shared).text);
    if let Some(waits) = &known {
        html.raw(", seen at ").text(clock(waits.at));
    }
    html.raw(". A cycle counts when it is there for a second.</p>");
    let findings = known.map_or_else(|| shared.search().findings.clone(), |waits| waits.findings);
    if !findings.is_empty() {
        wrong(&mut html, &findings, &shared);
    }
    if blocks.is_empty() {
        html.raw("<p>Nobody waits.</p>");
    } else {
        let deadlocks = findings.iter().filter_map(|finding| match finding {
            Finding::Deadlock(deadlock) => Some(deadlock),
            _ => None,
        });
        html.raw(
            "<p>An arrow goes from a waiter to the holder that keeps it from its grant, and to the waiter ",
        );
        html.raw("ahead of it if that one waits for another holder. What is part of a deadlock is bold.</p>");
        html.add(&picture::draw(&blocks, &Locked::by(deadlocks)));
        list(&mut html, &blocks);
    }
    whole_page("Waits", Some(&identity), true, &html)
}

/// The findings, with what to do.
fn wrong(html: &mut Html, findings: &[Finding], shared: &Shared) {
    html.raw("<h2>What is wrong</h2><ul>");
    for finding in findings {
        html.raw("<li class=\"warning\">")
            .text(finding)
            .raw(". What to do: ")
            .text(finding.advice(&|label| shared.reached(label)))
            .raw("</li>");
    }
    html.raw("</ul>");
}

fn list(html: &mut Html, blocks: &[Block]) {
    html.raw("<table><caption>Waits, with all that keeps each waiter from its grant</caption><thead><tr>");
    for title in ["Waiter", "Waited", "Name", "Engine", "Because of", "Which is"] {
        html.raw("<th scope=\"col\">").text(title).raw("</th>");
    }
    html.raw("</tr></thead><tbody>");
    for Block { waiter, blocker, .. } in blocks.iter().take(SHOWN) {
        html.raw("<tr><th scope=\"row\">").text(&waiter.owner).raw("</th><td>").text(lasting(waiter));
        html.raw("</td><td><a href=\"")
            .text(link("/name", &[("engine", &waiter.engine), ("name", &waiter.name)]));
        html.raw("\">").text(&waiter.name).raw("</a></td><td>").text(&waiter.engine).raw("</td><td>");
        html.text(&blocker.owner).raw("</td><td>").text(if blocker.holds {
            "the holder, held "
        } else {
            "a waiter ahead, waited "
        });
        html.text(lasting(blocker)).raw("</td></tr>");
    }
    html.raw("</tbody></table>");
    if blocks.len() > SHOWN {
        html.raw("<p>").text(blocks.len() - SHOWN).raw(" more are not shown.</p>");
    }
}

fn lasting(party: &Party) -> String {
    or_dash(party.since.map(|since| short(millis(since))))
}
