//! Who waits for whom, over all engines, with deadlocks and long waits.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use leasehold_ops::waits::{Block, Engines, Finding, Party, blocks};

use super::{or_dash, page as whole_page};
use crate::{
    guard::Identity,
    html::{Html, link},
    picture,
    state::Shared,
    time::{millis, short},
};

/// How many waits the list has.
const SHOWN: usize = 500;

pub(crate) async fn page(
    State(shared): State<Arc<Shared>>,
    Extension(identity): Extension<Identity>,
) -> Response {
    let looks: Vec<_> = shared.engines.iter().map(|engine| engine.look()).collect();
    let each = shared.engines.iter().zip(&looks);
    let all: Vec<_> = each.map(|(engine, look)| engine.wait_look(look)).collect();
    let (blocks, findings) = (blocks(&all), shared.waits());
    let mut html = Html::new();
    if findings.is_empty() {
        html.raw(
            "<p>No deadlock and no long wait is known. A cycle counts when it is there for a second.</p>",
        );
    } else {
        html.raw("<h2>What is wrong</h2><ul>");
        for finding in findings.iter() {
            html.raw("<li class=\"warning\">")
                .text(finding)
                .raw(". What to do: ")
                .text(finding.advice(Engines::of_count(shared.engines.len())))
                .raw("</li>");
        }
        html.raw("</ul>");
    }
    let deadlocks = findings.iter().filter_map(|finding| match finding {
        Finding::Deadlock(deadlock) => Some(deadlock),
        _ => None,
    });
    if blocks.is_empty() {
        html.raw("<p>Nobody waits.</p>");
    } else {
        html.raw("<p>An arrow goes from who waits to who keeps it from its grant. The boxes of a deadlock are bold.</p>");
        html.add(&picture::draw(&blocks, &picture::tasks_of(deadlocks)));
        list(&mut html, &blocks);
    }
    whole_page("Waits", Some(&identity), true, &html)
}

fn list(html: &mut Html, blocks: &[Block]) {
    html.raw("<table><caption>Waits</caption><thead><tr>");
    for title in ["Who waits", "for", "Name", "Engine", "because of", "which"] {
        html.raw("<th scope=\"col\">").text(title).raw("</th>");
    }
    html.raw("</tr></thead><tbody>");
    for Block { waiter, blocker, .. } in blocks.iter().take(SHOWN) {
        html.raw("<tr><th scope=\"row\">").text(&waiter.owner).raw("</th><td>").text(lasting(waiter));
        html.raw("</td><td><a href=\"")
            .text(link("/name", &[("engine", &waiter.engine), ("name", &waiter.name)]));
        html.raw("\">").text(&waiter.name).raw("</a></td><td>").text(&waiter.engine).raw("</td><td>");
        html.text(&blocker.owner).raw("</td><td>").text(if blocker.holds {
            "holds it for "
        } else {
            "waits before it for "
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
