//! The results of a sweep as they lie in its document, read leniently: what an older or a broken
//! document lacks is unknown.

use crate::compare::settings::parse_flags;
use crate::engine::shown_name;
use crate::matrix::{RowFigures, RowStatus};
use crate::report::chapters::document::{
    cut_text, flag_at, list_at, number_at, read_document, sentences_at, text_at,
};
use crate::report::layout::group_items;
use crate::report::tables::ItemFigure;
use crate::units::{gib_signed, to_gib};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A sweep.
#[derive(Debug, Default)]
pub(crate) struct SweepDocument {
    /// Its name, else where it was read.
    pub name: String,
    /// When it began.
    pub started: Option<String>,
    /// How long was worked on it, seconds.
    pub took_s: Option<f64>,
    /// What its own results say must be known.
    pub notes: Vec<String>,
    /// Every cell.
    pub cells: Vec<SweepCell>,
}

/// A cell and its result.
#[derive(Debug, Default)]
pub(crate) struct SweepCell {
    /// Its id; empty where the document has none.
    pub id: String,
    /// Its group.
    pub group: String,
    /// The model.
    pub model: String,
    /// Every setting and every figure of its load that the document names, as text.
    pub settings: BTreeMap<String, String>,
    /// `done`, `failed`, `skipped`, `not_run`, or whatever the document has.
    pub status: String,
    /// Why there are no figures: `oom`.
    pub cause: Option<String>,
    /// Where in its run that was.
    pub phase: Option<String>,
    /// The same in a sentence.
    pub message: Option<String>,
    /// Its profile, relative to the sweep's folder.
    pub profile: Option<String>,
    /// The engine and its version, where it was recognised.
    pub engine: Option<String>,
    /// Which backend measured.
    pub backend: Option<String>,
    /// Whether an engine or a device is simulated.
    pub simulated: bool,
    /// Its figures, whatever its status.
    pub figures: RowFigures,
}

/// A figure of a cell.
pub(crate) type CellFigure = ItemFigure<RowFigures>;

/// Every figure of the table, in its order.
#[rustfmt::skip]
pub(crate) static FIGURES: [CellFigure; 15] = [
    ItemFigure::new("peak_gib", "peak", "GiB", |f| f.peak_bytes.map(to_gib)),
    // As the bench of the cell counts them.
    ItemFigure::new("tokens_per_second", "throughput", "tokens/s", |f| f.tokens_per_second),
    ItemFigure::new("mean_latency_ms", "mean latency", "ms", |f| f.mean_latency_ms),
    ItemFigure::new("ttft_mean_ms", "mean time to first token", "ms", |f| f.ttft_mean_ms),
    ItemFigure::new("model_weights_gib", "weights", "GiB", |f| f.model_weights_bytes.map(to_gib)),
    ItemFigure::new("kv_pool_gib", "KV pool", "GiB", |f| f.kv_pool_bytes.map(to_gib)),
    ItemFigure::new("kv_pool_tokens", "KV pool", "tokens", |f| f.kv_pool_tokens.map(|n| n as f64)),
    // What the load used of the KV pool at most.
    ItemFigure::new("kv_used_gib", "KV used", "GiB", |f| f.kv_used_bytes.map(to_gib)),
    ItemFigure::new("activations_gib", "activations", "GiB", |f| f.activations_bytes.map(to_gib)),
    ItemFigure::new("overhead_gib", "overhead", "GiB", |f| f.overhead_bytes.map(to_gib)),
    ItemFigure::new("unexplained_gib", "unexplained", "GiB", |f| f.unexplained_bytes.map(gib_signed)),
    ItemFigure::new("requests_per_second", "requests", "1/s", |f| f.requests_per_second),
    ItemFigure::new("tpot_mean_ms", "mean time per further token", "ms", |f| f.tpot_mean_ms),
    ItemFigure::new("requests_completed", "requests done", "", |f| f.completed.map(|n| n as f64)),
    ItemFigure::new("requests_failed", "requests failed", "", |f| f.failed.map(|n| n as f64)),
];

/// Peak of all devices.
pub(crate) const PEAK: &CellFigure = &FIGURES[0];
/// Tokens per second.
pub(crate) const THROUGHPUT: &CellFigure = &FIGURES[1];
/// Latency.
pub(crate) const LATENCY: &CellFigure = &FIGURES[2];
/// Time to first token.
pub(crate) const TTFT: &CellFigure = &FIGURES[3];
/// What the load used of the KV pool.
pub(crate) const KV_USED: &CellFigure = &FIGURES[7];

/// Settings of one cell that are read.
const SETTINGS: usize = 200;
/// The status of a cell that the sweep did not come to.
const NOT_RUN: &str = "not_run";

impl SweepDocument {
    /// Of a document that was read at `place`.
    pub fn read_sweep(document: &Value, place: &str) -> SweepDocument {
        let cells = list_at(document, "/cells", usize::MAX).filter(|c| c.is_object());
        let mut cells: Vec<SweepCell> = cells.map(SweepCell::read_cell).collect();
        note_engines(&mut cells);
        SweepDocument {
            name: text_at(document, "/name").unwrap_or_else(|| cut_text(place)),
            started: text_at(document, "/started"),
            took_s: number_at(document, "/took_s"),
            notes: sentences_at(document, "/notes"),
            cells,
        }
    }

    /// The models, in the order in which they first come, and the cells of each.
    pub fn cells_by_model(&self) -> Vec<(&str, Vec<&SweepCell>)> {
        group_items(&self.cells, |cell| cell.model.as_str())
    }

    /// Whether any cell's engine or device is simulated.
    pub fn is_simulated(&self) -> bool {
        self.cells.iter().any(|c| c.simulated)
    }
}

impl SweepCell {
    fn read_cell(cell: &Value) -> SweepCell {
        let mut settings = BTreeMap::new();
        for path in ["/settings", "/load"] {
            let all = cell.pointer(path).and_then(Value::as_object);
            for (name, value) in all.into_iter().flatten().take(SETTINGS) {
                let text = match value {
                    Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
                    other => text_at(other, ""),
                };
                settings.extend(text.map(|text| (cut_text(name), text)));
            }
        }
        let words = list_at(cell, "/engine_args", usize::MAX).filter_map(Value::as_str);
        let words: Vec<String> = words.map(str::to_owned).collect();
        let flags = parse_flags(&words).into_iter().take(SETTINGS);
        settings.extend(flags.map(|(name, value)| (cut_text(&name), cut_text(&value))));
        let container = text_at(cell, "/place/container");
        settings.extend(container.map(|name| ("container".into(), name)));
        let image = text_at(cell, "/place/image/image").or(text_at(cell, "/place/image/name"));
        settings.extend(image.map(|name| ("image".into(), name)));
        let row = cell.get("row").unwrap_or(&Value::Null);
        let engine = text_at(row, "/figures/engine").or(text_at(cell, "/engine"));
        let version = text_at(row, "/figures/engine_version");
        let version = version.map_or(String::new(), |v| format!(" {v}"));
        let status = text_at(cell, "/status").or(text_at(row, "/status"));
        SweepCell {
            id: text_at(cell, "/cell").unwrap_or_default(),
            group: text_at(cell, "/group").unwrap_or_default(),
            model: text_at(cell, "/model").unwrap_or_else(|| "unknown model".into()),
            status: status.unwrap_or_else(|| NOT_RUN.into()),
            cause: text_at(row, "/cause"),
            phase: text_at(row, "/phase"),
            message: text_at(row, "/message"),
            profile: text_at(row, "/profile"),
            engine: engine.map(|engine| format!("{}{version}", shown_name(&engine))),
            backend: text_at(row, "/figures/memory_backend"),
            simulated: flag_at(row, "/figures/simulated"),
            figures: read_document(row.get("figures").unwrap_or(&Value::Null)),
            settings,
        }
    }

    /// Whether it was measured.
    pub fn is_done(&self) -> bool {
        self.status == "done"
    }

    /// Whether the sweep did not come to it.
    pub fn is_not_run(&self) -> bool {
        self.status == NOT_RUN
    }

    /// Whether it was tried and failed.
    pub fn is_failed(&self) -> bool {
        self.status == "failed"
    }

    /// Whether its figures are those between its neighbours.
    pub fn is_interpolated(&self) -> bool {
        self.status == RowStatus::Interpolated.as_str()
    }

    /// A figure in the unit that it is shown in; only a cell that was measured has any.
    pub fn figure_value(&self, figure: &CellFigure) -> Option<f64> {
        figure.value_of(&self.figures).filter(|_| self.is_done())
    }

    /// In words why it has no figures: its cause, else its status; one that was measured lacks a figure only.
    pub fn failure_reason(&self) -> String {
        if self.is_done() {
            return "not measured".into();
        }
        self.cause
            .as_ref()
            .unwrap_or(&self.status)
            .replace('_', " ")
    }

    /// A setting as a number.
    pub fn setting_number(&self, name: &str) -> Option<f64> {
        let value = self.settings.get(name)?.parse::<f64>().ok()?;
        Some(value).filter(|v| v.is_finite())
    }

    /// Its load: `input 256, output 128 tokens, batch 8`.
    pub fn load_words(&self) -> String {
        let words = [
            ("input_len", "input", ""),
            ("output_len", "output", " tokens"),
            ("batch_size", "batch", ""),
            ("request_rate", "rate", " requests/s"),
        ];
        let known = words.into_iter().filter_map(|(name, word, unit)| {
            let value = self.settings.get(name)?;
            Some(format!("{word} {value}{unit}"))
        });
        let known: Vec<String> = known.collect();
        let words = Some(known.join(", ")).filter(|words| !words.is_empty());
        words.unwrap_or_else(|| "load unknown".into())
    }

    /// Tokens that its requests hold at once, for putting loads in order of size.
    pub fn load_size(&self) -> f64 {
        let number = |name: &str| self.setting_number(name);
        let tokens = number("input_len").unwrap_or(0.0) + number("output_len").unwrap_or(0.0);
        tokens * number("batch_size").unwrap_or(1.0)
    }
}

/// Of several engines each is a value of its cells' settings, so that they are compared side by side. A cell that
/// failed before its engine was recognised has the engine of its group, else of its container; one that lacks the
/// version only has it from its group, or as the only one of that name.
fn note_engines(cells: &mut [SweepCell]) {
    let mut known: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for cell in cells.iter() {
        let Some(engine) = &cell.engine else { continue };
        let version = cell.figures.engine_version.as_deref().unwrap_or_default();
        let name = engine.strip_suffix(version).unwrap_or(engine).trim_end();
        let container = cell.settings.get("container").cloned();
        let keys = [("group", cell.group.clone()), ("name", name.to_owned())];
        for key in keys.into_iter().chain(container.map(|c| ("container", c))) {
            known.entry(key).or_default().insert(engine.clone());
        }
    }
    let resolve = |cell: &SweepCell| {
        let of = |what, key: Option<&String>| known.get(&(what, key?.clone()));
        // A name comes before the same name with its version.
        let of_group = of("group", Some(&cell.group)).and_then(BTreeSet::last);
        let of_place = || of("container", cell.settings.get("container")).and_then(BTreeSet::last);
        let of_name = of("name", cell.engine.as_ref()).filter(|all| all.len() == 2);
        let found = match (&cell.engine, &cell.figures.engine_version) {
            (Some(engine), Some(_)) => Some(engine),
            (Some(_), None) => of_name.and_then(BTreeSet::last).or(of_group),
            (None, _) => of_group.or_else(of_place),
        };
        found.cloned().unwrap_or_else(|| "unknown".into())
    };
    let engines: Vec<String> = cells.iter().map(resolve).collect();
    let distinct: BTreeSet<&String> = engines.iter().filter(|e| *e != "unknown").collect();
    if distinct.len() < 2 {
        return;
    }
    for (cell, engine) in cells.iter_mut().zip(engines) {
        cell.settings.insert("engine".into(), engine);
    }
}
