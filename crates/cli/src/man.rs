//! The manual page, made from the same texts as `--help`. A test writes the page and checks it, so the command itself
//! does not contain the page.

use clap::CommandFactory;
use clap_mangen::Man;

use crate::{args::Args, help};

const PAGE_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/man/leasehold.1");

/// Sections of the page that are too long for `--help`.
const ENVIRONMENT: &str = "\
.SH ENVIRONMENT
.TP
LEASEHOLD_URL
The URL of the engine, unless \\-\\-url is given.
.TP
LEASEHOLD_URL_FILE
A file with the URL on one line, unless one of the above is given. Only its owner may read it (mode 0600), because the URL
may contain a password.
.TP
NO_COLOR, TERM
For top: if NO_COLOR is set, no colours are used; if TERM is dumb or not set, the view is refused.
.TP
RUST_LOG
Which events of the library are written to standard error, like info or leasehold=debug,redis=trace.
.SS SET FOR CMD
.TP
LEASEHOLD_NAME, LEASEHOLD_CLAIM
The name, and the id of the hold, as in show.
.TP
LEASEHOLD_TOKEN, LEASEHOLD_LINEAGE
The fencing token, and its lineage: tokens of different lineages cannot be compared.
.TP
LEASEHOLD_HOLDS
With \\-\\-and: all holds of the run, as a JSON array of objects with name, mode, id, token and lineage.
.TP
LEASEHOLD_PREVIOUS
For once: how the run before this one ended: clean, abandoned, lapsed, broken or unknown.
.TP
LEASEHOLD_OUTER
The holds of the outer runs, one per line, the nearest first: claim, token, lineage, name. A run of one of these names is
refused (64), because it would wait for itself.
.TP
LEASEHOLD_ACTOR
The task that this run is, as in show \\-\\-json. A run inside CMD tells others by it that the outer run waits for its
end. A CMD that does not wait for such a run starts it with an empty LEASEHOLD_ACTOR.
.TP
LEASEHOLD_NO_URL
Is 1 if the URL was removed from the environment of CMD. A leasehold inside CMD then refuses to use the default engine.
.SH FILES
.TP
/etc/leasehold/url
The URL for all users of the machine, unless another is given.
.TP
/var/lib/leasehold, ~/.local/state/leasehold
The lock files of file: for root and for other users. The home directory is that of the user database.
";

/// Compares the page with its file. With `WRITE_MAN` in the environment, writes the page to the file first.
#[test]
fn the_manual_page_is_current() {
    let page = page().unwrap();
    for words in [
        "max\\-hold",
        "Exit codes",
        "completions",
        "LEASEHOLD_TOKEN",
        "SH ENVIRONMENT",
        "SH FILES",
        "SH EXIT STATUS\n.nf\n  CMD",
        "SH LEASEHOLD ELECT",
        "SH LEASEHOLD LEADER",
        "show\\-result",
        "LEASEHOLD_PREVIOUS",
    ] {
        assert!(page.contains(words), "{words}");
    }
    if std::env::var_os("WRITE_MAN").is_some() {
        std::fs::write(PAGE_FILE, &page).unwrap();
    }
    let written = std::fs::read_to_string(PAGE_FILE).unwrap();
    assert!(written == page, "run: WRITE_MAN=1 cargo test -p leasehold-cli manual_page");
}

/// The man page of the command, with all subcommands.
fn page() -> std::io::Result<String> {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let mut page = Vec::new();
    let whole = Man::new(command.clone()).date("").source(concat!("leasehold ", env!("CARGO_PKG_VERSION")));
    whole.render_title(&mut page)?;
    whole.render_name_section(&mut page)?;
    page.extend(b".SH SYNOPSIS\n");
    for sub in command.get_subcommands_mut() {
        page.extend(usage(sub).bytes());
    }
    whole.render_description_section(&mut page)?;
    whole.render_options_section(&mut page)?;
    for sub in command.get_subcommands() {
        page.extend(format!(".SH LEASEHOLD {}\n", sub.get_name().to_uppercase()).bytes());
        page.extend(section(sub)?.bytes());
    }
    page.extend(ENVIRONMENT.bytes());
    let (_, codes) = help::RUN.split_once("Exit codes:\n").expect("the help of run ends with them");
    let codes = codes.replace('-', "\\-");
    page.extend(format!(".SH EXIT STATUS\n.nf\n{codes}\n.fi\n").bytes());
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// The usage of a command, on one line.
fn usage(command: &mut clap::Command) -> String {
    let usage = command.render_usage().to_string();
    format!("{}\n.br\n", usage.trim_start_matches("Usage: ").replace('-', "\\-"))
}

/// The text of one command as a section of the page. Its headings are one level lower than on a separate page.
fn section(command: &clap::Command) -> std::io::Result<String> {
    let man = Man::new(command.clone());
    let mut text = Vec::new();
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_after_help().is_some() {
        man.render_extra_section(&mut text)?;
    }
    let text = String::from_utf8_lossy(&text);
    let text = text.replace(".SH DESCRIPTION\n", "").replace(".SH EXTRA", ".SS NOTES");
    Ok(preserve_tables(&text.replace(".SH OPTIONS", ".SS OPTIONS")))
}

/// In the output, indented lines keep their line breaks; other lines are joined into paragraphs.
fn preserve_tables(text: &str) -> String {
    let mut output = String::new();
    let mut table = false;
    for line in text.lines() {
        if line.starts_with("  ") != table {
            table = !table;
            output += if table { ".nf\n" } else { ".fi\n" };
        }
        output += line;
        output.push('\n');
    }
    if table { output + ".fi\n" } else { output }
}
