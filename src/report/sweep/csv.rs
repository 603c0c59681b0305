//! The results of a sweep as a table for spreadsheets and data frames. Unknown is empty, never 0.

use super::{CellOutcome, Results};
use crate::matrix::{EnginePlace, RowCause, RowFigures, RowPhase};
use crate::report::RenderError;
use crate::report::spreadsheet::{csv_line, harmless_field};
use crate::units::{GIB, gib_signed, to_gib};

/// A column: its name, and its content.
type CellColumn = (&'static str, fn(&CellOutcome) -> Field);

/// Content of a field.
enum Field {
    /// Unknown, or not given.
    Nothing,
    /// Words, perhaps from outside.
    Words(String),
    /// A figure of ours.
    Number(String),
}

/// The columns, in order. New ones come at the end.
const COLUMNS: &[CellColumn] = &[
    ("cell", |o| text_field(&o.cell.id)),
    ("group", |o| text_field(&o.cell.group)),
    ("model", |o| text_field(&o.cell.server.model)),
    // Recognised where it ran; as the file names it where it did not.
    ("engine", |o| {
        let ran = o.row.as_ref().and_then(|r| r.figures.engine.as_deref());
        optional_text_field(ran.or(o.cell.server.engine.as_deref()))
    }),
    ("container", |o| match &o.cell.server.place {
        EnginePlace::Container(name) => text_field(name),
        EnginePlace::Image(_) => Field::Nothing,
    }),
    ("image", |o| match &o.cell.server.place {
        EnginePlace::Container(_) => Field::Nothing,
        EnginePlace::Image(preset) => optional_text_field(preset.image.as_deref()),
    }),
    ("input_len", |o| number_field(Some(o.cell.load.input_len))),
    ("output_len", |o| number_field(Some(o.cell.load.output_len))),
    ("batch_size", |o| number_field(o.cell.load.batch_size)),
    ("request_rate", |o| number_field(o.cell.load.request_rate)),
    ("bench", |o| text_field(o.cell.load.bench.as_str())),
    ("dtype", |o| {
        optional_text_field(o.cell.server.settings.dtype.as_deref())
    }),
    ("quantization", |o| {
        optional_text_field(o.cell.server.settings.quantization.as_deref())
    }),
    ("kv_cache_dtype", |o| {
        optional_text_field(o.cell.server.settings.kv_cache_dtype.as_deref())
    }),
    ("tensor_parallel_size", |o| {
        number_field(o.cell.server.settings.tensor_parallel_size)
    }),
    ("gpu_memory_utilization", |o| {
        number_field(o.cell.server.settings.gpu_memory_utilization)
    }),
    ("max_model_len", |o| {
        number_field(o.cell.server.settings.max_model_len)
    }),
    ("engine_args", |o| {
        match o.cell.server.engine_args.as_slice() {
            [] => Field::Nothing,
            args => text_field(args.join(" ")),
        }
    }),
    ("status", |o| text_field(o.status_word())),
    ("cause", |o| {
        optional_text_field(o.row.as_ref().and_then(|r| r.cause).map(RowCause::as_str))
    }),
    ("phase", |o| {
        optional_text_field(o.row.as_ref().and_then(|r| r.phase).map(RowPhase::as_str))
    }),
    ("message", |o| {
        optional_text_field(o.row.as_ref().and_then(|r| r.message.as_deref()))
    }),
    ("attempt", |o| {
        number_field(o.row.as_ref().map(|r| r.attempt))
    }),
    ("took_s", |o| number_field(o.row.as_ref().map(|r| r.took_s))),
    ("peak_gib", |o| bytes_field(o, |f| f.peak_bytes)),
    ("baseline_gib", |o| bytes_field(o, |f| f.baseline_bytes)),
    ("model_weights_gib", |o| {
        bytes_field(o, |f| f.model_weights_bytes)
    }),
    ("kv_cache_gib", |o| bytes_field(o, |f| f.kv_cache_bytes)),
    ("kv_pool_gib", |o| bytes_field(o, |f| f.kv_pool_bytes)),
    ("kv_pool_tokens", |o| figure_field(o, |f| f.kv_pool_tokens)),
    ("activations_gib", |o| {
        bytes_field(o, |f| f.activations_bytes)
    }),
    ("overhead_gib", |o| bytes_field(o, |f| f.overhead_bytes)),
    ("unexplained_gib", |o| {
        figure_field(o, |f| f.unexplained_bytes.map(gib_signed))
    }),
    ("mean_latency_ms", |o| {
        figure_field(o, |f| f.mean_latency_ms)
    }),
    ("tokens_per_second", |o| {
        figure_field(o, |f| f.tokens_per_second)
    }),
    ("requests_per_second", |o| {
        figure_field(o, |f| f.requests_per_second)
    }),
    ("ttft_mean_ms", |o| figure_field(o, |f| f.ttft_mean_ms)),
    ("tpot_mean_ms", |o| figure_field(o, |f| f.tpot_mean_ms)),
    ("requests_completed", |o| figure_field(o, |f| f.completed)),
    ("requests_failed", |o| figure_field(o, |f| f.failed)),
    ("simulated", |o| {
        number_field(o.row.as_ref().map(|r| r.figures.simulated))
    }),
    ("memory_backend", |o| {
        optional_text_field(
            o.row
                .as_ref()
                .and_then(|r| r.figures.memory_backend.as_deref()),
        )
    }),
    ("engine_version", |o| {
        optional_text_field(
            o.row
                .as_ref()
                .and_then(|r| r.figures.engine_version.as_deref()),
        )
    }),
    ("profile", |o| {
        optional_text_field(o.row.as_ref().and_then(|r| r.profile.as_deref()))
    }),
    // The bench that ran, where `bench` is `auto`.
    ("bench_run", |o| {
        optional_text_field(o.row.as_ref().and_then(|r| r.figures.bench.as_deref()))
    }),
    ("repeats", |o| number_field(Some(o.cell.load.repeats))),
    ("num_prompts", |o| number_field(o.cell.load.num_prompts)),
    ("num_iters", |o| number_field(o.cell.load.num_iters)),
    ("num_iters_warmup", |o| {
        number_field(o.cell.load.num_iters_warmup)
    }),
    ("seed", |o| number_field(o.cell.load.seed)),
    ("model_params", |o| architecture(o, "model_params")),
    ("num_layers", |o| architecture(o, "num_layers")),
    ("num_heads", |o| architecture(o, "num_heads")),
    ("num_kv_heads", |o| architecture(o, "num_kv_heads")),
    ("head_dim", |o| architecture(o, "head_dim")),
    ("hidden_size", |o| architecture(o, "hidden_size")),
    ("mean_latency_stddev_ms", |o| {
        figure_field(o, |f| f.mean_latency_stddev_ms)
    }),
    ("tokens_per_second_stddev", |o| {
        figure_field(o, |f| f.tokens_per_second_stddev)
    }),
    ("peak_stddev_gib", |o| {
        figure_field(o, |f| f.peak_stddev_bytes.map(|b| b / GIB))
    }),
    ("kv_used_gib", |o| bytes_field(o, |f| f.kv_used_bytes)),
    ("low_confidence", |o| {
        let parts = o.row.iter().flat_map(|r| &r.figures.low_confidence);
        let labels: Vec<&str> = parts.map(|c| c.display_label()).collect();
        optional_text_field(Some(labels.join(", ")).filter(|l| !l.is_empty()).as_deref())
    }),
];

/// The table, with a head.
pub fn render_csv(results: &Results) -> Result<Vec<u8>, RenderError> {
    let mut table = csv_line(COLUMNS.iter().map(|c| c.0.to_owned()));
    for outcome in &results.cells {
        let fields = COLUMNS.iter().map(|c| match (c.1)(outcome) {
            Field::Nothing => String::new(),
            Field::Number(number) => number,
            Field::Words(words) => harmless_field(words),
        });
        table.push_str(&csv_line(fields));
    }
    Ok(table.into_bytes())
}

fn text_field(words: impl ToString) -> Field {
    Field::Words(words.to_string())
}

fn optional_text_field(word: Option<&str>) -> Field {
    word.map_or(Field::Nothing, text_field)
}

fn number_field(number: Option<impl ToString>) -> Field {
    number.map_or(Field::Nothing, |n| Field::Number(n.to_string()))
}

fn figure_field<T: ToString>(outcome: &CellOutcome, pick: fn(&RowFigures) -> Option<T>) -> Field {
    number_field(outcome.row.as_ref().and_then(|row| pick(&row.figures)))
}

/// The model of the file.
fn architecture(outcome: &CellOutcome, name: &str) -> Field {
    number_field(outcome.cell.server.architecture.get(name))
}

fn bytes_field(outcome: &CellOutcome, pick: fn(&RowFigures) -> Option<u64>) -> Field {
    number_field(
        outcome
            .row
            .as_ref()
            .and_then(|row| pick(&row.figures))
            .map(to_gib),
    )
}
