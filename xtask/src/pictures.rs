//! Draws the pictures of the documentation as SVG files: sequence diagrams and [charts](crate::chart). Each picture is
//! drawn from the text file beside it.
//!
//! Each line of the text of a sequence diagram is one of these: `title WORDS`; `lane KEY WORDS`, a lane (lanes are
//! drawn from left to right); `A > B WORDS`, an arrow; `A ! B WORDS`, an arrow that does not arrive; `A ~ WORDS`, a
//! note; `A [` and `A ] WORDS`, the begin and the end of a hold.

use std::{fmt::Write as _, fs, path::PathBuf};

use crate::{chart, workspace::Workspace};

const TEXTS_FOLDER: &str = "docs/pictures";
/// Distances, in pixels.
const LANE_WIDTH: usize = 280;
const ROW_HEIGHT: usize = 30;
const TOP_MARGIN: usize = 84;
/// The x position of the first lane.
const FIRST_LANE_X: usize = 130;

/// Draws all pictures again.
pub(crate) fn write(workspace: &Workspace) -> Result<(), String> {
    for (svg, drawn) in all(workspace)? {
        fs::write(&svg, drawn).map_err(|error| format!("{}: {error}", svg.display()))?;
    }
    Ok(())
}

/// Complaints about pictures that differ from what their texts describe.
pub(crate) fn complaints(workspace: &Workspace) -> Vec<String> {
    match all(workspace) {
        Err(reason) => vec![reason],
        Ok(all) => all
            .into_iter()
            .filter(|(svg, drawn)| fs::read_to_string(svg).ok().as_ref() != Some(drawn))
            .map(|(svg, _)| {
                format!("{}: is not drawn from its text: `cargo xtask pictures`", workspace.shown(&svg))
            })
            .collect(),
    }
}

fn all(workspace: &Workspace) -> Result<Vec<(PathBuf, String)>, String> {
    let failed = |error: std::io::Error| format!("{TEXTS_FOLDER}: {error}");
    let mut pictures = Vec::new();
    for entry in fs::read_dir(workspace.root.join(TEXTS_FOLDER)).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let text = fs::read_to_string(&path).map_err(failed)?;
            let draw = if chart::is_chart(&text) { chart::draw } else { draw };
            let drawn = draw(&text).map_err(|reason| format!("{}: {reason}", workspace.shown(&path)))?;
            pictures.push((path.with_extension("svg"), drawn));
        }
    }
    pictures.sort();
    if pictures.is_empty() { Err(format!("{TEXTS_FOLDER} has no text of a picture")) } else { Ok(pictures) }
}

/// A picture while it is drawn.
#[derive(Default)]
struct Picture<'t> {
    title: &'t str,
    lanes: Vec<Lane<'t>>,
    body: String,
    /// The number of events so far. Each event has a row of its own.
    rows: usize,
}

/// A vertical line of a picture. It stands for a process or a server.
struct Lane<'t> {
    key: &'t str,
    words: &'t str,
    /// The y position at which the current hold of the lane begins.
    hold_start: Option<usize>,
}

fn draw(text: &str) -> Result<String, String> {
    let mut picture = Picture::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        picture.add_line(line).ok_or_else(|| format!("cannot be drawn: {line}"))?;
    }
    Ok(picture.svg())
}

impl<'t> Picture<'t> {
    fn add_line(&mut self, line: &'t str) -> Option<()> {
        let (first, rest) = line.split_once(' ')?;
        match first {
            "title" => self.title = rest,
            "lane" => {
                let (key, words) = rest.split_once(' ')?;
                self.lanes.push(Lane { key, words, hold_start: None });
            }
            _ => self.add_event(self.lane_index(first)?, rest)?,
        }
        Some(())
    }

    fn add_event(&mut self, lane: usize, rest: &str) -> Option<()> {
        self.rows += 1;
        let (sign, words) = rest.split_once(' ').unwrap_or((rest, ""));
        let (x, y) = (x_of(lane), TOP_MARGIN + self.rows * ROW_HEIGHT);
        match sign {
            ">" | "!" => {
                let (to, words) = words.split_once(' ')?;
                self.draw_arrow(x, x_of(self.lane_index(to)?), y, words, sign == ">");
            }
            "~" => self.draw_note(lane, y, words),
            "[" => self.lanes[lane].hold_start = Some(y),
            "]" => {
                let start = self.lanes[lane].hold_start.take()?;
                let _ = writeln!(
                    self.body,
                    r#"<rect class="hold" x="{}" y="{start}" width="10" height="{}"/>"#,
                    x - 5,
                    y - start
                );
                self.draw_note(lane, y + 16, words);
            }
            _ => return None,
        }
        Some(())
    }

    fn draw_arrow(&mut self, from: usize, to: usize, y: usize, words: &str, arrives: bool) {
        let class = if arrives { "arrow" } else { "lost" };
        let _ = writeln!(
            self.body,
            r#"<line class="{class}" x1="{from}" y1="{y}" x2="{to}" y2="{y}" marker-end="url(#{class}-end)"/>"#
        );
        self.draw_words(usize::midpoint(from, to), y - 5, words, class);
    }

    /// Draws a note beside its lane, on the side on which it fits into the picture.
    fn draw_note(&mut self, lane: usize, y: usize, words: &str) {
        match lane {
            0 => self.draw_words(x_of(lane) + 12, y, words, "note begins"),
            _ if lane + 1 == self.lanes.len() => self.draw_words(x_of(lane) - 12, y, words, "note ends"),
            _ => self.draw_words(x_of(lane), y, words, "note"),
        }
    }

    fn draw_words(&mut self, x: usize, y: usize, words: &str, class: &str) {
        if !words.is_empty() {
            let _ = writeln!(self.body, r#"<text class="{class}" x="{x}" y="{y}">{}</text>"#, escaped(words));
        }
    }

    fn lane_index(&self, key: &str) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.key == key)
    }

    fn svg(&self) -> String {
        let (width, height) = (
            2 * FIRST_LANE_X + (self.lanes.len() - 1) * LANE_WIDTH,
            TOP_MARGIN + (self.rows + 2) * ROW_HEIGHT,
        );
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n{STYLE}",
            escaped(self.title)
        );
        let _ = writeln!(svg, r#"<rect class="paper" width="{width}" height="{height}"/>"#);
        let _ =
            writeln!(svg, r#"<text class="title" x="{}" y="28">{}</text>"#, width / 2, escaped(self.title));
        for (number, Lane { words, .. }) in self.lanes.iter().enumerate() {
            let x = x_of(number);
            let _ = writeln!(svg, r#"<text class="lane" x="{x}" y="66">{}</text>"#, escaped(words));
            let _ = writeln!(svg, r#"<line class="life" x1="{x}" y1="76" x2="{x}" y2="{}"/>"#, height - 12);
        }
        svg + &self.body + "</svg>\n"
    }
}

const STYLE: &str = r##"<style>
text{font:13px sans-serif;text-anchor:middle;fill:#222;paint-order:stroke;stroke:#fff;stroke-width:4px}
.title{font-size:16px;font-weight:bold}.lane{font-weight:bold}.note{font-style:italic;fill:#555}.begins{text-anchor:start}.ends{text-anchor:end}.lost{fill:#b00}
.paper{fill:#fff}.life{stroke:#aaa}.hold{fill:#4a8}line.arrow{stroke:#222}line.lost{stroke:#b00;stroke-dasharray:5 4}
</style>
<defs>
<marker id="arrow-end" orient="auto" markerWidth="8" markerHeight="8" refX="8" refY="4"><path d="m0,0l8,4l-8,4z" fill="#222"/></marker>
<marker id="lost-end" orient="auto" markerWidth="8" markerHeight="8" refX="4" refY="4"><path d="m0,0l8,8m-8,0l8,-8" stroke="#b00"/></marker>
</defs>
"##;

const fn x_of(lane: usize) -> usize {
    FIRST_LANE_X + lane * LANE_WIDTH
}

/// The words for the text of an SVG file.
pub(crate) fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "title T & U\nlane A one\nlane B two\nA > B ask\nA [\nB ! A no answer\nA ~ a note\nA ] end\n";

    #[test]
    fn a_text_is_drawn() {
        let svg = draw(TEXT).unwrap();
        for part in [
            ">T &amp; U</text>",
            ">one</text>",
            "class=\"arrow\"",
            "class=\"lost\"",
            "class=\"hold\"",
            ">a note<",
            ">end<",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn an_invalid_line_is_reported() {
        for line in ["A > C ask", "A ] no hold began", "A ? B x", "word"] {
            let error = draw(&format!("lane A one\n{line}\n")).unwrap_err();
            assert!(error.ends_with(line), "{error}");
        }
    }

    #[test]
    fn every_picture_matches_its_text() {
        assert_eq!(complaints(&Workspace::find().unwrap()), [""; 0]);
    }
}
