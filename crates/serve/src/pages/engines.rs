//! What each engine promises, why it is not more, and what is wrong.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use leasehold::{Diagnostic, Guarantee};

use super::page as whole_page;
use crate::{guard::Identity, html::Html, state::Shared, time::now_ms};

pub(crate) async fn page(
    State(shared): State<Arc<Shared>>,
    Extension(identity): Extension<Identity>,
) -> Response {
    let (mut html, now) = (Html::new(), now_ms());
    for engine in &shared.engines {
        let (look, health) = (engine.look(), engine.health());
        html.raw("<section><h2>").text(&engine.label).raw("</h2><p>").text(engine.locks.profile().engine);
        html.raw(", ").text(look.rows.len()).raw(" names in use. ").text(look.state_text(now)).raw("</p>");
        html.raw("<p>Guarantee: <strong>").text(health.level()).raw("</strong></p>");
        match &health.guarantee {
            Some(Ok(guarantee)) => findings(&mut html, guarantee),
            Some(Err(why)) => drop(html.raw("<p>").text(why).raw("</p>")),
            None => {}
        }
        match &health.diagnostics {
            Some(Ok(diagnostics)) => list(&mut html, diagnostics),
            Some(Err(why)) => drop(html.raw("<p>").text(why).raw("</p>")),
            None => {}
        }
        html.raw("</section>");
    }
    whole_page("Engines", Some(&identity), true, &html)
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

/// Diagnostics, the worst first.
fn list(html: &mut Html, diagnostics: &[Diagnostic]) {
    if diagnostics.is_empty() {
        return;
    }
    let mut sorted: Vec<_> = diagnostics.iter().collect();
    sorted.sort_by_key(|diagnostic| std::cmp::Reverse(diagnostic.severity));
    html.raw("<table><caption>Diagnostics, as of leasehold doctor</caption><thead><tr>");
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
