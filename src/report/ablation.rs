//! An A/B run as a page: arms, memory part by part, latency and throughput.

use super::layout::{Align, TextTable, clean_text, format_figure, wrap_text};
use super::text::TextOptions;
use crate::capture::RunEnd;
use crate::compare::ablation::{Ablation, Arm};
use crate::compare::graphs::MIB;
use crate::compare::{Judgement, Row, Side, Unit};

/// The page.
pub fn render_ablation(ablation: &Ablation, options: TextOptions) -> String {
    let mut page = AblationPage {
        text: String::new(),
        options,
    };
    page.write_head(ablation);
    page.write_findings(ablation);
    page.write_memory(ablation);
    page.others(ablation);
    page.write_reasons(ablation);
    page.write_graphs(ablation);
    page.text
}

/// One arm's side of a row.
type SideOfRow = fn(&Row) -> &Side;

struct AblationPage {
    text: String,
    options: TextOptions,
}

impl AblationPage {
    fn write_line(&mut self, line: &str) {
        let line = clean_text(line, self.options.unicode);
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn write_table(&mut self, title: &str, table: &TextTable) {
        self.write_line("");
        self.write_line(title);
        for line in table.render_lines() {
            self.write_line(&format!("  {line}"));
        }
    }

    /// A sentence, wrapped.
    fn aside(&mut self, text: &str) {
        let room = self.options.width.saturating_sub(4).max(24);
        for (i, part) in wrap_text(text, room).iter().enumerate() {
            let indent = if i == 0 { "  " } else { "    " };
            self.write_line(&format!("{indent}{part}"));
        }
    }

    fn write_head(&mut self, ablation: &Ablation) {
        let version = ablation.engine_version.as_deref().unwrap_or("—");
        let mut title = format!(
            "{}: {} against {}",
            ablation.container, ablation.a.name, ablation.b.name
        );
        if ablation.simulated {
            title.push_str("  SIMULATED");
        }
        self.write_line(&title);
        self.write_line(&format!(
            "{} {version}, {}, {} bench, memory read by {}",
            ablation.engine,
            ablation.model.as_deref().unwrap_or("model —"),
            ablation.bench,
            ablation.memory_backend
        ));
        self.write_line("");
        for (letter, arm) in [("A", &ablation.a), ("B", &ablation.b)] {
            self.arm(letter, arm);
        }
    }

    fn arm(&mut self, letter: &str, arm: &Arm) {
        let args = if arm.engine_args.is_empty() {
            "no arguments of its own".to_owned()
        } else {
            arm.engine_args.join(" ")
        };
        let runs = match arm.runs.len() {
            1 => "1 run".to_owned(),
            n => format!("{n} runs"),
        };
        let failed = arm
            .runs
            .iter()
            .filter(|r| r.outcome != RunEnd::Completed)
            .count();
        let failed = match failed {
            0 => String::new(),
            n => format!(", {n} FAILED"),
        };
        self.aside(&format!("{letter} = {}: {args} ({runs}{failed})", arm.name));
    }

    /// What the runs warn of: an argument without effect makes two arms that are the same.
    fn write_findings(&mut self, ablation: &Ablation) {
        let arms = [("A", &ablation.a), ("B", &ablation.b)];
        if arms.iter().all(|(_, arm)| arm.findings.is_empty()) {
            return;
        }
        self.write_line("");
        self.write_line("Findings");
        let in_both = |message: &str| {
            (arms.iter()).all(|(_, arm)| arm.findings.iter().any(|f| f.message == message))
        };
        for (letter, arm) in arms {
            for finding in &arm.findings {
                match in_both(&finding.message) {
                    true if letter == "A" => self.aside(&format!("both: {}", finding.message)),
                    true => {}
                    false => self.aside(&format!("{letter}: {}", finding.message)),
                }
            }
        }
    }

    fn write_memory(&mut self, ablation: &Ablation) {
        let mut table = TextTable::new(&[
            ("", Align::Left),
            ("A", Align::Right),
            ("B", Align::Right),
            ("B - A", Align::Right),
            ("%", Align::Right),
            ("", Align::Left),
        ]);
        let c = &ablation.comparison;
        let both = c.components.iter().chain([&c.remainder]);
        for row in [&c.total].into_iter().chain(both) {
            table.add_row(row_cells(row));
        }
        self.write_table("Memory at the peak, MiB (medians)", &table);
    }

    fn others(&mut self, ablation: &Ablation) {
        let others = &ablation.comparison.others;
        if others.is_empty() {
            return;
        }
        let mut table = TextTable::new(&[
            ("", Align::Left),
            ("A", Align::Right),
            ("lowest to highest", Align::Left),
            ("B", Align::Right),
            ("lowest to highest", Align::Left),
            ("B - A", Align::Right),
            ("%", Align::Right),
            ("", Align::Left),
        ]);
        for row in others {
            let [label, a, b, tail @ ..] = &row_cells(row)[..] else {
                continue;
            };
            let label = match row.unit {
                Unit::Bytes => format!("{label}, MiB"),
                _ => label.clone(),
            };
            let (in_a, in_b) = (
                format_range(row.unit, &row.a),
                format_range(row.unit, &row.b),
            );
            let mut cells = vec![label, a.clone(), in_a, b.clone(), in_b];
            cells.extend_from_slice(tail);
            table.add_row(cells);
        }
        self.write_table("Pool, latency, throughput (medians)", &table);
    }

    /// Why figures are missing, each once.
    fn write_reasons(&mut self, ablation: &Ablation) {
        let c = &ablation.comparison;
        let rows = [&c.total].into_iter().chain(&c.components).chain(&c.others);
        let mut said = Vec::new();
        let arms: [(&str, SideOfRow); 2] = [("A", |r| &r.a), ("B", |r| &r.b)];
        for (letter, side) in arms {
            // An arm without a run to its end knows nothing, for one reason.
            if let Some(why) = &side(&c.total).unknown {
                said.push(format!("{letter}: {why}"));
                continue;
            }
            for row in rows.clone() {
                if let Some(why) = &side(row).unknown {
                    said.push(format!("{letter}, {}: {why}", row.label));
                }
            }
        }
        if !said.is_empty() {
            self.write_line("");
            self.write_line("Unknown");
        }
        said.iter().for_each(|s| self.aside(s));
    }

    fn write_graphs(&mut self, ablation: &Ablation) {
        let Some(graphs) = &ablation.graphs else {
            return;
        };
        self.write_line("");
        self.write_line("CUDA graphs");
        match (graphs.overhead_bytes, graphs.reading) {
            (Some(bytes), Some(reading)) => self.aside(&format!(
                "{:.1} MiB, {}: {}",
                bytes / MIB,
                graphs.witness,
                graphs.thresholds.describe_reading(reading)
            )),
            _ => self.aside(&format!("no reading: {}", graphs.witness)),
        }
    }
}

/// Label, A, B, difference, percent, judgement.
fn row_cells(row: &Row) -> Vec<String> {
    vec![
        row.label.clone(),
        format_value(row.unit, row.a.median),
        format_value(row.unit, row.b.median),
        difference(row),
        row.difference_percent
            .map_or_else(String::new, format_percent),
        judgement(row).into(),
    ]
}

/// Of next to nothing everything is very many times as much.
fn format_percent(p: f64) -> String {
    match p {
        p if p >= 1000.0 => "> 999".into(),
        p if p <= -1000.0 => "< -999".into(),
        p => plus(p, format!("{p:.1}")),
    }
}

fn judgement(row: &Row) -> &'static str {
    match row.judgement {
        None => "",
        Some(Judgement::Equal) => "equal",
        Some(Judgement::WithinNoise) => "within noise",
        Some(Judgement::BeyondNoise) => "beyond noise",
        Some(Judgement::SpreadUnknown) => "spread unknown",
    }
}

fn format_value(unit: Unit, value: Option<f64>) -> String {
    match (unit, value) {
        (_, None) => "—".into(),
        (Unit::Bytes, Some(bytes)) => nought(format!("{:.1}", bytes / MIB)),
        (_, Some(v)) => format_figure(v),
    }
}

fn difference(row: &Row) -> String {
    match row.difference {
        None => "—".into(),
        Some(d) => plus(d, format_value(row.unit, Some(d))),
    }
}

/// With its sign, unless it rounds to nothing.
fn plus(v: f64, text: String) -> String {
    let text = nought(text);
    let nothing = text.chars().all(|c| c == '0' || c == '.');
    if v > 0.0 && !nothing {
        format!("+{text}")
    } else {
        text
    }
}

/// Nothing is negative zero.
fn nought(text: String) -> String {
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => rest.to_owned(),
        _ => text,
    }
}

fn format_range(unit: Unit, side: &Side) -> String {
    match side.spread.filter(|s| s.n > 1) {
        None => String::new(),
        Some(s) => format!(
            "{} to {}",
            format_value(unit, Some(s.min)),
            format_value(unit, Some(s.max))
        ),
    }
}
