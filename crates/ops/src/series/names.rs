//! Which names have series of their own.

use leasehold::View;

/// The most names of one engine that have series of their own. Each name has up to three series, and a Prometheus keeps
/// each of them for weeks.
pub const MAX_NAMES: usize = 1000;

/// Selects the names that have series of their own.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct NameFilter {
    globs: Vec<String>,
}

impl NameFilter {
    /// The names that at least one of these patterns matches. In a pattern `*` stands for any characters, also for `/`,
    /// and `?` for one character. Without patterns no name is selected.
    pub fn new(globs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { globs: globs.into_iter().map(Into::into).collect() }
    }

    /// Whether the name is selected.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.globs.iter().any(|glob| is_match(glob, name))
    }

    /// The selected views, at most [`MAX_NAMES`], and how many are left out. The first in the order of names stay, so
    /// that the choice does not change from look to look.
    pub(super) fn select<'a>(&self, views: &'a [View]) -> (Vec<&'a View>, usize) {
        let mut selected: Vec<_> = views.iter().filter(|view| self.matches(view.name.as_str())).collect();
        selected.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
        let dropped = selected.len().saturating_sub(MAX_NAMES);
        selected.truncate(MAX_NAMES);
        (selected, dropped)
    }
}

/// Whether the pattern matches the whole text. The time is at most the product of both lengths.
fn is_match(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<_>, Vec<_>) = (glob.chars().collect(), text.chars().collect());
    let (mut in_glob, mut in_text) = (0, 0);
    // The newest star, and up to where its characters reach.
    let mut star: Option<(usize, usize)> = None;
    while in_text < text.len() {
        match glob.get(in_glob) {
            Some('*') => {
                star = Some((in_glob, in_text));
                in_glob += 1;
            }
            Some(c) if *c == '?' || *c == text[in_text] => {
                in_glob += 1;
                in_text += 1;
            }
            _ => {
                let Some((at, reach)) = &mut star else { return false };
                *reach += 1;
                (in_glob, in_text) = (*at + 1, *reach);
            }
        }
    }
    glob[in_glob..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use leasehold::Name;

    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_name() {
        for (glob, name) in [
            ("", ""),
            ("*", "a/b"),
            ("deploy/*", "deploy/"),
            ("deploy/*", "deploy/x/y"),
            ("*/prod", "a/b/prod"),
            ("a?c", "aöc"),
            ("a*b*c", "a-b-b-c"),
            ("**x", "x"),
        ] {
            assert!(is_match(glob, name), "{glob} {name}");
        }
        for (glob, name) in
            [("", "a"), ("a", ""), ("deploy/*", "deploy"), ("a?c", "ac"), ("a*b", "abc"), ("A", "a")]
        {
            assert!(!is_match(glob, name), "{glob} {name}");
        }
        let (glob, name) = (format!("{}b", "*a".repeat(200)), "a".repeat(512));
        assert!(!is_match(&glob, &name), "a hostile pattern takes no exponential time");
    }

    #[test]
    fn what_is_left_out_is_counted_and_always_the_same() {
        let names = (0..MAX_NAMES + 5).map(|i| format!("n{i:05}")).rev();
        let views: Vec<_> = names.map(|name| View::free(Name::new(&name).unwrap(), String::new())).collect();
        let (selected, dropped) = NameFilter::new(["n*"]).select(&views);
        assert_eq!((selected.len(), dropped), (MAX_NAMES, 5));
        assert_eq!((selected[0].name.as_str(), selected[MAX_NAMES - 1].name.as_str()), ("n00000", "n00999"));
        let (selected, dropped) = NameFilter::default().select(&views);
        assert_eq!((selected.len(), dropped), (0, 0), "no name is selected by default");
    }
}
