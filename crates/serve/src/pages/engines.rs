//! What each engine promises, why it is not more, and what is wrong.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use leasehold::{Diagnostic, Guarantee};

use super::page as whole_page;
use crate::{
    guard::Identity,
    html::Html,
    state::{EngineState, Shared},
    time::{clock, now_ms},
};

pub(crate) async fn page(
    State(shared): State<Arc<Shared>>,
    Extension(identity): Extension<Identity>,
) -> Response {
    let (mut html, now) = (Html::new(), now_ms());
    for engine in &shared.engines {
        html.raw("<section>").add(&section(engine, now)).raw("</section>");
    }
    whole_page("Engines", Some(&identity), true, &html)
}

/// All about one engine. The guarantee and the diagnostics are asked rarely, so their time is shown.
fn section(engine: &EngineState, now: u64) -> Html {
    let (mut html, look, health) = (Html::new(), engine.look(), engine.health());
    html.raw("<h2>").text(&engine.label).raw("</h2><p>").text(engine.locks.profile().engine);
    html.raw(", ").text(look.rows.len()).raw(" names in use. ").text(look.state_text(now)).raw("</p>");
    let seen = health.at.map(|at| format!(", seen at {}", clock(at))).unwrap_or_default();
    html.raw("<p>Guarantee: <strong>").text(health.level()).raw("</strong>").text(&seen).raw("</p>");
    match &health.guarantee {
        Some(Ok(guarantee)) => findings(&mut html, guarantee),
        Some(Err(why)) => drop(html.raw("<p>").text(why).raw("</p>")),
        None => {}
    }
    match &health.diagnostics {
        Some(Ok(diagnostics)) => list(&mut html, diagnostics, &seen),
        Some(Err(why)) => drop(html.raw("<p>").text(why).raw("</p>")),
        None => {}
    }
    html
}

/// Why the level is not higher, and what else is to be known.
fn findings(html: &mut Html, guarantee: &Guarantee) {
    html.raw("<ul>");
    for finding in &guarantee.findings {
        html.raw("<li class=\"warning\">warning: ").text(finding).raw("</li>");
    }
    for note in &guarantee.notes {
        html.raw("<li>").text(note).raw("</li>");
    }
    html.raw("</ul>");
}

/// Diagnostics, the worst first. `seen`: when they were made, as a part of a sentence.
fn list(html: &mut Html, diagnostics: &[Diagnostic], seen: &str) {
    if diagnostics.is_empty() {
        return;
    }
    let mut sorted: Vec<_> = diagnostics.iter().collect();
    sorted.sort_by_key(|diagnostic| std::cmp::Reverse(diagnostic.severity));
    html.raw("<table><caption>Diagnostics, as of leasehold doctor").text(seen);
    html.raw("</caption><thead><tr>");
    for title in ["Severity", "What", "Server", "Found", "What to do"] {
        html.raw("<th scope=\"col\">").text(title).raw("</th>");
    }
    html.raw("</tr></thead><tbody>");
    for diagnostic in sorted {
        html.raw("<tr class=\"").text(diagnostic.severity).raw("\"><td>").text(diagnostic.severity);
        html.raw("</td><th scope=\"row\">").text(diagnostic.id).raw("</th><td>");
        html.text(diagnostic.server.as_deref().unwrap_or("-")).raw("</td><td>").text(&diagnostic.found);
        html.raw("</td><td>").text(&diagnostic.advice).raw("</td></tr>");
    }
    html.raw("</tbody></table>");
}

#[cfg(test)]
mod tests {
    use leasehold::{Level, Locks};
    use leasehold_ops::Reached;

    use super::*;
    use crate::{settings::EngineSource, state::Health};

    #[test]
    fn the_time_is_that_of_the_question() {
        let engine = EngineState::new(EngineSource {
            label: "main".to_owned(),
            locks: Locks::connect("memory:").unwrap(),
            breaker: None,
            reached: Reached::Label("main".to_owned()),
        });
        let asked = 1_795_733_832_000;
        let page = |now| section(&engine, now).into_string();
        assert!(page(asked).contains("<strong>not asked yet</strong></p>"), "{}", page(asked));
        engine.set_health(Health {
            at: Some(asked),
            guarantee: Some(Ok(Guarantee::new(Level::Exact, &[]))),
            diagnostics: Some(Ok(vec![Diagnostic::good("clock", "in time")])),
        });
        let later = page(asked + 59_000);
        for words in
            ["<strong>exact</strong>, seen at 22:57:12 UTC", "doctor, seen at 22:57:12 UTC</caption>"]
        {
            assert!(later.contains(words), "{later}");
        }
    }
}
