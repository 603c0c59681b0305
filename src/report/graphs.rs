//! The cost of CUDA graphs as a page: both arms, then what they say together.

use super::layout::{Align, TextTable, clean_text, wrap_text};
use super::text::TextOptions;
use crate::compare::graph_report::{GraphArm, GraphReport, MemoryMb};
use crate::compare::graphs::MIB;

/// The page.
pub fn render_graphs(report: &GraphReport, options: TextOptions) -> String {
    let mut page = GraphsPage {
        text: String::new(),
        options,
    };
    page.write_head(report);
    for arm in &report.arms {
        page.arm(arm);
    }
    page.analysis(report);
    page.write_findings(report);
    page.text
}

struct GraphsPage {
    text: String,
    options: TextOptions,
}

impl GraphsPage {
    fn write_line(&mut self, line: &str) {
        let line = clean_text(line, self.options.unicode);
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A label and its value, wrapped under itself.
    fn pair(&mut self, label: &str, value: &str) {
        let room = self.options.width.saturating_sub(18).max(24);
        for (i, part) in wrap_text(value, room).iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            self.write_line(&format!("  {label:14}  {part}"));
        }
    }

    fn write_head(&mut self, report: &GraphReport) {
        let version = report.engine_version.as_deref().unwrap_or("—");
        let mut title = format!(
            "{}: CUDA graphs of TensorRT-LLM {version}, {} speculation",
            report.container, report.speculation
        );
        if report.simulated {
            title.push_str("  SIMULATED");
        }
        self.write_line(&title);
        let s = &report.settings;
        self.write_line(&format!(
            "{} ({}), batches up to {}, drafts of {}, sequences up to {}",
            report.model_name, report.model_path, s.max_batch_size, s.max_draft_len, s.max_seq_len
        ));
    }

    fn arm(&mut self, arm: &GraphArm) {
        self.write_line("");
        self.write_line(&format!("Experiment {}", arm.experiment));
        if let Some(error) = &arm.error {
            self.pair("FAILED", &format!("{} ({})", error.message, error.kind));
        }
        for (label, memory) in [
            ("memory before", &arm.memory_before),
            ("memory after", &arm.memory_after),
        ] {
            if let Some(memory) = memory {
                self.pair(label, &memory_levels(memory));
            }
        }
        if let Some(host) = &arm.host {
            let whose = if host.gpu {
                "GPUs"
            } else {
                "the container's own memory, not the GPU's"
            };
            let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / MIB);
            self.pair(
                "from the host",
                &format!(
                    "{} before, {} after, {} at most ({}: {whose})",
                    mib(host.before_bytes),
                    mib(host.after_bytes),
                    mib(host.peak_bytes),
                    host.backend
                ),
            );
        }
        let graphs = match arm.num_cuda_graphs {
            None => "— (nothing told of them)".to_owned(),
            Some(n) => {
                let by = arm.cuda_graphs_by_draft_len.iter();
                let by: Vec<String> = by.map(|(len, n)| format!("{len}: {n}")).collect();
                let by = if by.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", by.join(", "))
                };
                let from = match arm.counted_from.as_deref() {
                    Some("structure") if arm.log.is_some() => {
                        "counted in the engine's structures and in its log"
                    }
                    Some("structure") => {
                        "counted in the engine's structures; its log tells of none"
                    }
                    _ => "counted in its log",
                };
                format!("{n}{by}, {from}")
            }
        };
        self.pair("CUDA graphs", &graphs);
    }

    fn analysis(&mut self, report: &GraphReport) {
        let analysis = &report.analysis;
        self.write_line("");
        self.write_line("ANALYSIS");
        let unknown = |path: &str| {
            let why = report.unknown.get(&format!("analysis.{path}"));
            format!("— ({})", why.map_or("not known", String::as_str))
        };
        if !analysis.overheads.is_empty() {
            let names: Vec<&str> = report.arms.iter().map(|a| a.experiment.as_str()).collect();
            let name = |i: usize| names.get(i).copied().unwrap_or_default();
            let mut table = TextTable::new(&[
                ("MiB, by", Align::Left),
                (name(0), Align::Right),
                (name(1), Align::Right),
                ("overhead", Align::Right),
                ("%", Align::Right),
                ("per added graph", Align::Right),
            ]);
            for o in &analysis.overheads {
                table.add_row(vec![
                    witness(&o.witness).into(),
                    format!("{:.1}", o.a_bytes as f64 / MIB),
                    format!("{:.1}", o.b_bytes as f64 / MIB),
                    format!("{:.1}", o.overhead_mib),
                    o.overhead_percent
                        .map_or_else(|| "—".into(), |p| format!("{p:.1}")),
                    o.mib_per_additional_graph
                        .map_or_else(|| "—".into(), |m| format!("{m:.1}")),
                ]);
            }
            for line in table.render_lines() {
                self.write_line(&format!("  {line}"));
            }
        }
        let added = match analysis.additional_cuda_graphs {
            Some(n) => n.to_string(),
            None => unknown("additional_cuda_graphs"),
        };
        self.pair("added graphs", &added);
        let reading = match (analysis.reading, analysis.overheads.first()) {
            (Some(reading), Some(first)) => format!(
                "{}, by {}",
                report.thresholds.describe_reading(reading),
                witness(&first.witness)
            ),
            _ => unknown("reading"),
        };
        self.pair("reading", &reading);
        self.pair(
            "spread",
            "unknown: each arm was run once. What a graph takes is measured here and no constant; it differs by model and release",
        );
    }

    fn write_findings(&mut self, report: &GraphReport) {
        if report.findings.is_empty() {
            return;
        }
        self.write_line("");
        self.write_line("Findings");
        for f in &report.findings {
            let severity = format!("{:?}", f.severity).to_lowercase();
            self.pair(&severity, &format!("{} [{}]", f.message, f.code));
        }
    }
}

fn witness(name: &str) -> &'static str {
    match name {
        "device" => "the driver",
        "reserved" => "torch, reserved",
        "allocated" => "torch, allocated",
        _ => "the host",
    }
}

fn memory_levels(memory: &MemoryMb) -> String {
    let one = |name: &str, mb: Option<f64>| match mb {
        Some(mb) => format!("{name} {mb:.1}"),
        None => format!("{name} —"),
    };
    [
        one("allocated", memory.allocated_mb),
        one("reserved", memory.reserved_mb),
        one("max allocated", memory.max_allocated_mb),
        one("whole device", memory.device_used_mb),
    ]
    .join(", ")
        + " MiB"
}
