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
    ("cell", |o| words(&o.cell.id)),
    ("group", |o| words(&o.cell.group)),
    ("model", |o| words(&o.cell.server.model)),
    // Recognised where it ran; as the file names it where it did not.
    ("engine", |o| {
        let ran = o.row.as_ref().and_then(|r| r.figures.engine.as_deref());
        word(ran.or(o.cell.server.engine.as_deref()))
    }),
    ("container", |o| match &o.cell.server.place {
        EnginePlace::Container(name) => words(name),
        EnginePlace::Image(_) => Field::Nothing,
    }),
    ("image", |o| match &o.cell.server.place {
        EnginePlace::Container(_) => Field::Nothing,
        EnginePlace::Image(preset) => word(preset.image.as_deref()),
    }),
    ("input_len", |o| number(Some(o.cell.load.input_len))),
    ("output_len", |o| number(Some(o.cell.load.output_len))),
    ("batch_size", |o| number(o.cell.load.batch_size)),
    ("request_rate", |o| number(o.cell.load.request_rate)),
    ("bench", |o| words(o.cell.load.bench.as_str())),
    ("dtype", |o| word(o.cell.server.settings.dtype.as_deref())),
    ("quantization", |o| {
        word(o.cell.server.settings.quantization.as_deref())
    }),
    ("kv_cache_dtype", |o| {
        word(o.cell.server.settings.kv_cache_dtype.as_deref())
    }),
    ("tensor_parallel_size", |o| {
        number(o.cell.server.settings.tensor_parallel_size)
    }),
    ("gpu_memory_utilization", |o| {
        number(o.cell.server.settings.gpu_memory_utilization)
    }),
    ("max_model_len", |o| {
        number(o.cell.server.settings.max_model_len)
    }),
    ("engine_args", |o| {
        match o.cell.server.engine_args.as_slice() {
            [] => Field::Nothing,
            args => words(args.join(" ")),
        }
    }),
    ("status", |o| words(o.status_word())),
    ("cause", |o| {
        word(o.row.as_ref().and_then(|r| r.cause).map(RowCause::as_str))
    }),
    ("phase", |o| {
        word(o.row.as_ref().and_then(|r| r.phase).map(RowPhase::as_str))
    }),
    ("message", |o| {
        word(o.row.as_ref().and_then(|r| r.message.as_deref()))
    }),
    ("attempt", |o| number(o.row.as_ref().map(|r| r.attempt))),
    ("took_s", |o| number(o.row.as_ref().map(|r| r.took_s))),
    ("peak_gib", |o| bytes(o, |f| f.peak_bytes)),
    ("baseline_gib", |o| bytes(o, |f| f.baseline_bytes)),
    ("model_weights_gib", |o| bytes(o, |f| f.model_weights_bytes)),
    ("kv_cache_gib", |o| bytes(o, |f| f.kv_cache_bytes)),
    ("kv_pool_gib", |o| bytes(o, |f| f.kv_pool_bytes)),
    ("kv_pool_tokens", |o| figure(o, |f| f.kv_pool_tokens)),
    ("activations_gib", |o| bytes(o, |f| f.activations_bytes)),
    ("overhead_gib", |o| bytes(o, |f| f.overhead_bytes)),
    ("unexplained_gib", |o| {
        figure(o, |f| f.unexplained_bytes.map(gib_signed))
    }),
    ("mean_latency_ms", |o| figure(o, |f| f.mean_latency_ms)),
    ("tokens_per_second", |o| figure(o, |f| f.tokens_per_second)),
    ("requests_per_second", |o| {
        figure(o, |f| f.requests_per_second)
    }),
    ("ttft_mean_ms", |o| figure(o, |f| f.ttft_mean_ms)),
    ("tpot_mean_ms", |o| figure(o, |f| f.tpot_mean_ms)),
    ("requests_completed", |o| figure(o, |f| f.completed)),
    ("requests_failed", |o| figure(o, |f| f.failed)),
    ("simulated", |o| {
        number(o.row.as_ref().map(|r| r.figures.simulated))
    }),
    ("memory_backend", |o| {
        word(
            o.row
                .as_ref()
                .and_then(|r| r.figures.memory_backend.as_deref()),
        )
    }),
    ("engine_version", |o| {
        word(
            o.row
                .as_ref()
                .and_then(|r| r.figures.engine_version.as_deref()),
        )
    }),
    ("profile", |o| {
        word(o.row.as_ref().and_then(|r| r.profile.as_deref()))
    }),
    // The bench that ran, where `bench` is `auto`.
    ("bench_run", |o| {
        word(o.row.as_ref().and_then(|r| r.figures.bench.as_deref()))
    }),
    ("repeats", |o| number(Some(o.cell.load.repeats))),
    ("num_prompts", |o| number(o.cell.load.num_prompts)),
    ("num_iters", |o| number(o.cell.load.num_iters)),
    ("num_iters_warmup", |o| number(o.cell.load.num_iters_warmup)),
    ("seed", |o| number(o.cell.load.seed)),
    ("model_params", |o| architecture(o, "model_params")),
    ("num_layers", |o| architecture(o, "num_layers")),
    ("num_heads", |o| architecture(o, "num_heads")),
    ("num_kv_heads", |o| architecture(o, "num_kv_heads")),
    ("head_dim", |o| architecture(o, "head_dim")),
    ("hidden_size", |o| architecture(o, "hidden_size")),
    ("mean_latency_stddev_ms", |o| {
        figure(o, |f| f.mean_latency_stddev_ms)
    }),
    ("tokens_per_second_stddev", |o| {
        figure(o, |f| f.tokens_per_second_stddev)
    }),
    ("peak_stddev_gib", |o| {
        figure(o, |f| f.peak_stddev_bytes.map(|b| b / GIB))
    }),
    ("kv_used_gib", |o| bytes(o, |f| f.kv_used_bytes)),
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

fn words(words: impl ToString) -> Field {
    Field::Words(words.to_string())
}

fn word(word: Option<&str>) -> Field {
    word.map_or(Field::Nothing, words)
}

fn number(number: Option<impl ToString>) -> Field {
    number.map_or(Field::Nothing, |n| Field::Number(n.to_string()))
}

fn figure<T: ToString>(outcome: &CellOutcome, pick: fn(&RowFigures) -> Option<T>) -> Field {
    number(outcome.row.as_ref().and_then(|row| pick(&row.figures)))
}

/// The model of the file.
fn architecture(outcome: &CellOutcome, name: &str) -> Field {
    number(outcome.cell.server.architecture.get(name))
}

fn bytes(outcome: &CellOutcome, pick: fn(&RowFigures) -> Option<u64>) -> Field {
    number(
        outcome
            .row
            .as_ref()
            .and_then(|row| pick(&row.figures))
            .map(to_gib),
    )
}
