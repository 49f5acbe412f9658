//! The table and the text of the chart.

use std::{fmt::Write as _, fs, path::Path};

use crate::{Failure, comparison::three_digits};

/// The rows of the table, and the panels of the chart. Each has one cell or bar for each engine.
pub(crate) struct Report {
    names: Vec<&'static str>,
    rows: Vec<(String, Vec<String>)>,
    chart: String,
}

impl Report {
    pub(crate) fn new(names: Vec<&'static str>) -> Self {
        Self { names, rows: Vec::new(), chart: "title Engines side by side\n".to_owned() }
    }

    /// Adds a row of figures to the table, and a panel with these figures to the chart.
    pub(crate) fn row_with_chart(&mut self, what: &str, figures: &[f64]) {
        let _ = writeln!(self.chart, "panel {what}");
        for (name, figure) in self.names.iter().zip(figures) {
            let _ = writeln!(self.chart, "bar {figure:.3} {name}");
        }
        self.row(what, figures.iter().map(|&figure| three_digits(figure)).collect());
    }

    /// Adds a row of words to the table.
    pub(crate) fn row(&mut self, what: &str, cells: Vec<String>) {
        self.rows.push((what.to_owned(), cells));
    }

    /// Prints the table, and writes the table and the text of the chart to `target/engines`.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace above")?;
        let dir = dir.join("target/engines");
        let table = self.table();
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("table.md"), &table)?;
        fs::write(dir.join("chart.txt"), &self.chart)?;
        println!("\n{table}\nThe table and the text of the chart are in {}", dir.display());
        Ok(())
    }

    fn table(&self) -> String {
        let line = |first: &str, cells: Vec<&str>| format!("| {first} | {} |\n", cells.join(" | "));
        let mut table = line("what", self.names.clone());
        table += &format!("|---|{}\n", "---|".repeat(self.names.len()));
        for (what, cells) in &self.rows {
            table += &line(what, cells.iter().map(String::as_str).collect());
        }
        table
    }
}
