//! The snippets of a page.

/// The first snippet in this language after these words of the page.
#[track_caller]
pub(super) fn snippet<'page>(page: &'page str, words: &str, language: &str) -> &'page str {
    let (_, rest) = page.split_once(words).unwrap_or_else(|| panic!("the page has no {words:?}"));
    let fence = format!("\n```{language}\n");
    let (_, rest) = rest.split_once(&fence).unwrap_or_else(|| panic!("no {language} after {words:?}"));
    rest.split_once("\n```").expect("the end of a snippet").0
}

/// The rest of each line of a snippet that begins like this, after its indentation.
#[track_caller]
pub(super) fn after<'page>(snippet: &'page str, beginning: &str) -> Vec<&'page str> {
    let found: Vec<_> =
        snippet.lines().filter_map(|line| line.trim_start().strip_prefix(beginning)).collect();
    assert!(!found.is_empty(), "no line begins with {beginning:?} in:\n{snippet}");
    found
}

/// The items of a list of YAML whose key is this: the lines below it that begin with a dash, as plain texts.
#[track_caller]
pub(super) fn items<'page>(snippet: &'page str, key: &str) -> Vec<&'page str> {
    let key = format!("{key}:");
    let lines = snippet.lines().map(str::trim_start).skip_while(|line| *line != key).skip(1);
    let items: Vec<_> = lines.map_while(|line| line.strip_prefix("- ")).collect();
    assert!(!items.is_empty(), "no items of {key:?} in:\n{snippet}");
    items
}
