//! The results of a sweep as they lie in its document, read leniently: what an older or a broken
//! document lacks is unknown.

use crate::compare::settings::parse_flags;
use crate::report::chapters::document::{DocumentFigure, new_figure};
use crate::report::layout::truncate_text;
use crate::units::GIB;
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
    figures: BTreeMap<&'static str, f64>,
}

/// Peak of all devices.
pub(crate) static PEAK: DocumentFigure = new_figure("peak_bytes", "peak_gib", "peak", "GiB", GIB);
/// Tokens per second, as the bench of the cell counts them.
pub(crate) static THROUGHPUT: DocumentFigure = new_figure(
    "tokens_per_second",
    "tokens_per_second",
    "throughput",
    "tokens/s",
    1.0,
);
/// Time to first token.
pub(crate) static TTFT: DocumentFigure = new_figure(
    "ttft_mean_ms",
    "ttft_mean_ms",
    "mean time to first token",
    "ms",
    1.0,
);
/// Latency.
pub(crate) static LATENCY: DocumentFigure = new_figure(
    "mean_latency_ms",
    "mean_latency_ms",
    "mean latency",
    "ms",
    1.0,
);
/// What the load used of the KV pool at most.
pub(crate) static KV_USED: DocumentFigure =
    new_figure("kv_used_bytes", "kv_used_gib", "KV used", "GiB", GIB);

/// Every figure of the table, in its order.
pub(crate) static FIGURES: &[&DocumentFigure] = &[
    &PEAK,
    &THROUGHPUT,
    &LATENCY,
    &TTFT,
    &new_figure(
        "model_weights_bytes",
        "model_weights_gib",
        "weights",
        "GiB",
        GIB,
    ),
    &new_figure("kv_pool_bytes", "kv_pool_gib", "KV pool", "GiB", GIB),
    &new_figure("kv_pool_tokens", "kv_pool_tokens", "KV pool", "tokens", 1.0),
    &KV_USED,
    &new_figure(
        "activations_bytes",
        "activations_gib",
        "activations",
        "GiB",
        GIB,
    ),
    &new_figure("overhead_bytes", "overhead_gib", "overhead", "GiB", GIB),
    &new_figure(
        "unexplained_bytes",
        "unexplained_gib",
        "unexplained",
        "GiB",
        GIB,
    ),
    &new_figure(
        "requests_per_second",
        "requests_per_second",
        "requests",
        "1/s",
        1.0,
    ),
    &new_figure(
        "tpot_mean_ms",
        "tpot_mean_ms",
        "mean time per further token",
        "ms",
        1.0,
    ),
    &new_figure("completed", "requests_completed", "requests done", "", 1.0),
    &new_figure("failed", "requests_failed", "requests failed", "", 1.0),
];

/// Longest name of a model, value or place that is shown, cells.
const NAME: usize = 72;
/// Settings of one cell that are read.
const SETTINGS: usize = 200;
/// Longest sentence, cells.
const SENTENCE: usize = 240;

impl SweepDocument {
    /// Of a document that was read at `place`.
    pub fn read_sweep(document: &Value, place: &str) -> SweepDocument {
        let cells = document.get("cells").and_then(Value::as_array);
        let notes = document.get("notes").and_then(Value::as_array);
        let cells = cells.into_iter().flatten().filter(|c| c.is_object());
        let mut cells: Vec<SweepCell> = cells.map(SweepCell::read_sweep).collect();
        note_engines(&mut cells);
        SweepDocument {
            name: bounded_text(document, "/name", NAME)
                .unwrap_or_else(|| cut_to_cells(place, NAME)),
            started: bounded_text(document, "/started", NAME),
            took_s: document.get("took_s").and_then(Value::as_f64),
            notes: (notes.into_iter().flatten())
                .filter_map(|n| Some(cut_to_cells(n.as_str()?, SENTENCE)))
                .collect(),
            cells,
        }
    }

    /// The models, in the order in which they first come.
    pub fn model_names(&self) -> Vec<&str> {
        let mut models: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !models.contains(&cell.model.as_str()) {
                models.push(&cell.model);
            }
        }
        models
    }

    /// Whether any cell's engine or device is simulated.
    pub fn is_simulated(&self) -> bool {
        self.cells.iter().any(|c| c.simulated)
    }
}

impl SweepCell {
    fn read_sweep(cell: &Value) -> SweepCell {
        let mut settings = BTreeMap::new();
        for path in ["/settings", "/load"] {
            let all = cell.pointer(path).and_then(Value::as_object);
            for (name, value) in all.into_iter().flatten().take(SETTINGS) {
                if let Some(value) = scalar(value) {
                    settings.insert(cut_to_cells(name, NAME), cut_to_cells(&value, NAME));
                }
            }
        }
        let words: Vec<String> = (cell.get("engine_args").and_then(Value::as_array))
            .into_iter()
            .flatten()
            .filter_map(|w| w.as_str().map(str::to_owned))
            .collect();
        for (name, value) in parse_flags(&words).into_iter().take(SETTINGS) {
            settings.insert(cut_to_cells(&name, NAME), cut_to_cells(&value, NAME));
        }
        for (name, paths) in [
            ("container", &["/place/container"][..]),
            ("image", &["/place/image/image", "/place/image/name"][..]),
        ] {
            if let Some(value) = paths.iter().find_map(|p| bounded_text(cell, p, NAME)) {
                settings.insert(name.into(), value);
            }
        }
        let row = cell.get("row").unwrap_or(&Value::Null);
        let engine = bounded_text(row, "/figures/engine", NAME)
            .or_else(|| bounded_text(cell, "/engine", NAME));
        let version = bounded_text(row, "/figures/engine_version", NAME);
        let status =
            bounded_text(cell, "/status", NAME).or_else(|| bounded_text(row, "/status", NAME));
        let figures = FIGURES
            .iter()
            .filter_map(|f| Some((f.key, f.value_in_row(row.get("figures")?)?)));
        SweepCell {
            id: bounded_text(cell, "/cell", NAME).unwrap_or_default(),
            group: bounded_text(cell, "/group", NAME).unwrap_or_default(),
            model: bounded_text(cell, "/model", NAME).unwrap_or_else(|| "unknown model".into()),
            status: status.unwrap_or_else(|| "not_run".into()),
            cause: bounded_text(row, "/cause", NAME),
            phase: bounded_text(row, "/phase", NAME),
            message: bounded_text(row, "/message", SENTENCE),
            profile: bounded_text(row, "/profile", 2 * NAME),
            engine: engine.map(|e| match version {
                Some(version) => format!("{e} {version}"),
                None => e,
            }),
            backend: bounded_text(row, "/figures/memory_backend", NAME),
            simulated: row.pointer("/figures/simulated") == Some(&Value::Bool(true)),
            figures: figures.collect(),
            settings,
        }
    }

    /// Whether it was measured.
    pub fn is_done(&self) -> bool {
        self.status == "done"
    }

    /// A figure in the unit that it is shown in; only a cell that was measured has any.
    pub fn figure_value(&self, figure: &DocumentFigure) -> Option<f64> {
        let value = self.figures.get(figure.key).copied();
        value.filter(|v| v.is_finite() && self.is_done())
    }

    /// In a word why it has no figures: its cause, else its status.
    pub fn failure_reason(&self) -> String {
        let word = self.cause.as_ref().unwrap_or(&self.status);
        word.replace('_', " ")
    }

    /// A setting as a number.
    pub fn setting_number(&self, name: &str) -> Option<f64> {
        let value = self.settings.get(name)?.parse::<f64>().ok()?;
        Some(value).filter(|v| v.is_finite())
    }

    /// Its load: `in 256 out 128 batch 8`.
    pub fn load_words(&self) -> String {
        let mut words = Vec::new();
        for (name, word) in [
            ("input_len", "in"),
            ("output_len", "out"),
            ("batch_size", "batch"),
            ("request_rate", "rate"),
        ] {
            if let Some(value) = self.settings.get(name) {
                words.push(format!("{word} {value}"));
            }
        }
        if words.is_empty() {
            "load unknown".into()
        } else {
            words.join(" ")
        }
    }

    /// Tokens that its requests hold at once, for putting loads in order of size.
    pub fn model_size(&self) -> f64 {
        let number = |name: &str| self.setting_number(name);
        let tokens = number("input_len").unwrap_or(0.0) + number("output_len").unwrap_or(0.0);
        tokens * number("batch_size").unwrap_or(1.0)
    }
}

/// Of several engines each is a value of its cells' settings, so that they are compared side by side. A cell that
/// failed before its engine was recognised has the engine of its group, else of its container.
fn note_engines(cells: &mut [SweepCell]) {
    let mut engines: BTreeSet<&str> = BTreeSet::new();
    let mut places: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for cell in cells.iter() {
        let Some(engine) = cell.engine.as_deref() else {
            continue;
        };
        engines.insert(engine);
        places.insert(("group", &cell.group), engine);
        if let Some(container) = cell.settings.get("container") {
            places.insert(("container", container), engine);
        }
    }
    if engines.len() < 2 {
        return;
    }
    let names: Vec<String> = cells
        .iter()
        .map(|cell| {
            let container = cell.settings.get("container").map_or("", String::as_str);
            let known = cell.engine.as_deref();
            known
                .or_else(|| places.get(&("group", cell.group.as_str())).copied())
                .or_else(|| places.get(&("container", container)).copied())
                .unwrap_or("unknown")
                .to_owned()
        })
        .collect();
    for (cell, engine) in cells.iter_mut().zip(names) {
        cell.settings.insert("engine".into(), engine);
    }
}

fn bounded_text(value: &Value, path: &str, cells: usize) -> Option<String> {
    let text = value.pointer(path)?.as_str()?.trim();
    (!text.is_empty()).then(|| cut_to_cells(text, cells))
}

fn cut_to_cells(text: &str, cells: usize) -> String {
    // A text of megabytes is not measured to its end.
    let few: String = text.chars().take(4 * cells).collect();
    truncate_text(&few, cells, "…")
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}
