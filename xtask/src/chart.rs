//! Draws the charts of the documentation: bars that compare several things by several measures, as SVG. A chart is
//! drawn from a text in the folder of the [pictures](crate::pictures).
//!
//! Each line of the text is one of these: `title WORDS`; `panel WORDS`, a measure; `bar NUMBER WORDS`, a bar of the
//! panel above it. Bars are logarithmic, because the figures of a panel differ by factors of a thousand: each line of
//! the grid stands for ten times the line before it.

use std::fmt::Write as _;

use crate::pictures::escaped;

/// Distances, in pixels.
const WIDTH: usize = 860;
const BAR_HEIGHT: usize = 20;
const PANEL_HEAD: usize = 52;
const TOP_MARGIN: usize = 56;
/// The x position at which bars begin, and the longest bar.
const BARS_X: usize = 220;
const LONGEST_BAR: f64 = 540.0;

/// Whether a text describes a chart. Otherwise it describes a sequence diagram.
pub(crate) fn is_chart(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("panel "))
}

/// A chart while its text is read.
#[derive(Default)]
struct Chart<'t> {
    title: &'t str,
    panels: Vec<Panel<'t>>,
}

/// One measure.
struct Panel<'t> {
    words: &'t str,
    bars: Vec<(f64, &'t str)>,
}

/// Draws a chart.
pub(crate) fn draw(text: &str) -> Result<String, String> {
    let mut chart = Chart::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        chart.add_line(line).ok_or_else(|| format!("cannot be drawn: {line}"))?;
    }
    Ok(chart.svg())
}

impl<'t> Chart<'t> {
    fn add_line(&mut self, line: &'t str) -> Option<()> {
        match line.split_once(' ')? {
            ("title", words) => self.title = words,
            ("panel", words) => self.panels.push(Panel { words, bars: Vec::new() }),
            ("bar", rest) => self.panels.last_mut()?.bars.push(bar(rest)?),
            _ => return None,
        }
        Some(())
    }

    fn svg(&self) -> String {
        let (mut body, mut y) = (String::new(), TOP_MARGIN);
        for panel in &self.panels {
            y = panel.draw(&mut body, y);
        }
        let title = escaped(self.title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" role=\"img\">\n\
             <title>{title}</title>\n{STYLE}<rect class=\"paper\" width=\"{WIDTH}\" height=\"{y}\"/>\n\
             <text class=\"title\" x=\"20\" y=\"28\">{title}</text>\n{body}</svg>\n"
        )
    }
}

/// A bar: a positive number, and words.
fn bar(rest: &str) -> Option<(f64, &str)> {
    let (number, words) = rest.split_once(' ')?;
    let number = number.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)?;
    Some((number, words))
}

impl Panel<'_> {
    /// Draws the panel below `top`. Returns where it ends.
    fn draw(&self, body: &mut String, top: usize) -> usize {
        let exponents = self.bars.iter().map(|(number, _)| number.log10());
        let (least, most) = exponents.fold((f64::MAX, f64::MIN), |(least, most), exponent| {
            (least.min(exponent.ceil() - 1.0), most.max(exponent.ceil()))
        });
        let length = |number: f64| (number.log10() - least) / (most - least) * LONGEST_BAR;
        let bars_top = top + PANEL_HEAD;
        let bottom = bars_top + self.bars.len() * BAR_HEIGHT;
        let _ =
            writeln!(body, r#"<text class="panel" x="20" y="{}">{}</text>"#, top + 24, escaped(self.words));
        for step in 0..=(most - least) as i32 {
            let number = 10_f64.powi(least as i32 + step);
            let x = BARS_X as f64 + length(number);
            let _ = writeln!(
                body,
                r#"<line class="grid" x1="{x:.1}" y1="{bars_top}" x2="{x:.1}" y2="{bottom}"/><text class="scale" x="{x:.1}" y="{}">{}</text>"#,
                bars_top - 5,
                shown(number)
            );
        }
        for (index, &(number, words)) in self.bars.iter().enumerate() {
            let (y, length) = (bars_top + index * BAR_HEIGHT, length(number));
            let (text_y, x) = (y + 14, BARS_X as f64 + length + 6.0);
            let _ = writeln!(
                body,
                r#"<text class="name" x="{}" y="{text_y}">{}</text><rect class="bar" x="{BARS_X}" y="{}" width="{length:.1}" height="{}"/><text class="figure" x="{x:.1}" y="{text_y}">{}</text>"#,
                BARS_X - 8,
                escaped(words),
                y + 3,
                BAR_HEIGHT - 6,
                shown(number)
            );
        }
        bottom + BAR_HEIGHT
    }
}

/// The number with three significant digits, and with commas between thousands.
fn shown(number: f64) -> String {
    if number < 1000.0 {
        let digits = usize::try_from(2 - number.log10().floor() as i32).unwrap_or(0);
        let text = format!("{number:.digits$}");
        return if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        };
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

const STYLE: &str = "<style>\n\
text{font:13px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}.panel{font-weight:bold}\
.name{text-anchor:end}.scale{font-size:10px;fill:#777;text-anchor:middle}\
.paper{fill:#fff}.bar{fill:#4a8}.grid{stroke:#ddd}\n</style>\n";

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "title T & U\npanel pairs a second\nbar 61000.25 file\nbar 1000 etcd\npanel ms\nbar 0.5 file\n";

    #[test]
    fn a_text_is_drawn() {
        assert!(is_chart(TEXT) && !is_chart("title T\nlane A one\n"));
        let svg = draw(TEXT).unwrap();
        for part in [
            ">T &amp; U</text>",
            ">pairs a second</text>",
            ">file</text>",
            ">61,000</text>",
            ">1,000</text>",
            ">0.5</text>",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert_eq!(svg.matches("class=\"bar\"").count(), 3);
    }

    #[test]
    fn a_bar_is_as_long_as_its_logarithm() {
        // The grid of the panel begins at 100, because no bar of a panel is empty, and ends at 100,000.
        let svg = draw("panel p\nbar 100000 a\nbar 10000 b\nbar 1000 c\n").unwrap();
        for width in ["540.0", "360.0", "180.0"] {
            assert!(svg.contains(&format!("width=\"{width}\"")), "{width}: {svg}");
        }
    }

    #[test]
    fn an_invalid_line_is_reported() {
        for line in ["bar 0 none", "bar many words", "bar 1", "lane A one", "word"] {
            let error = draw(&format!("panel p\n{line}\n")).unwrap_err();
            assert!(error.ends_with(line), "{error}");
        }
        assert!(draw("bar 1 before a panel\n").is_err());
    }
}
