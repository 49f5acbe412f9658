//! Text as HTML. Markup is only what stands in this program; everything else is text, which is escaped.

use std::fmt::{self, Display, Write};

/// A piece of a page.
#[derive(Default)]
pub(crate) struct Html(String);

impl Html {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds markup. It is a text of this program, so no text of others can become markup.
    pub(crate) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds text, in an element or in a quoted attribute.
    pub(crate) fn text(&mut self, text: impl Display) -> &mut Self {
        let _ = write!(Escaped(&mut self.0), "{text}");
        self
    }

    /// Adds another piece.
    pub(crate) fn add(&mut self, piece: &Self) -> &mut Self {
        self.0.push_str(&piece.0);
        self
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

/// Writes text with escapes for HTML, and with [visible](write_visible) escapes for characters that change how other
/// text is shown.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                _ => write_visible(self.0, c),
            }
        }
        Ok(())
    }
}

/// Writes a character; a control character, or one that changes the direction of text, as a visible escape.
fn write_visible(out: &mut String, c: char) {
    let changes_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || changes_direction {
        let _ = write!(out, "{}", c.escape_unicode());
    } else {
        out.push(c);
    }
}

/// Text for a script, which shows it as text: with the visible escapes of [`Html::text`], and no others.
pub(crate) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| write_visible(&mut out, c));
    out
}

/// A path of this page with a query. The query has no character that HTML or a URL interprets, except `&`.
pub(crate) fn link(path: &'static str, query: &[(&str, &str)]) -> String {
    let mut encoded = form_urlencoded::Serializer::for_suffix(format!("{path}?"), path.len() + 1);
    encoded.extend_pairs(query);
    encoded.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_never_becomes_markup() {
        let mut html = Html::new();
        html.raw("<a title=\"").text("\"><script>'&\u{202e}\0").raw("\">");
        let expected = "<a title=\"&quot;&gt;&lt;script&gt;&#39;&amp;\\u{202e}\\u{0}\">";
        assert_eq!(html.into_string(), expected);
    }

    #[test]
    fn a_link_keeps_any_name_in_its_query() {
        let name = "a&b=\"<c>\u{e4}#?/";
        let link = link("/name", &[("name", name), ("engine", "e")]);
        assert!(!link.contains(['"', '<', '>', '#', '\'', '\u{e4}']), "{link}");
        let (_, query) = link.split_once('?').unwrap();
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        assert_eq!(pairs[0], ("name".to_owned(), name.to_owned()));
        assert_eq!(pairs.len(), 2);
    }
}
