//! The results of a sweep as a table for spreadsheets and data frames. Unknown is empty, never 0.

use super::{CellOutcome, Results};
use crate::matrix::{CellRow, EnginePlace, RowCause, RowPhase};
use crate::report::chapters::SWEEP_FIGURES;
use crate::report::spreadsheet::{figure_cell, write_table};
use crate::units::{GIB, to_gib};

/// A column: its name, and its content, which may follow from the name.
type CellColumn = (&'static str, fn(&CellOutcome, &str) -> String);

/// The columns, in order. New ones come at the end.
const COLUMNS: &[CellColumn] = &[
    ("cell", |o, _| o.cell.id.to_string()),
    ("group", |o, _| o.cell.group.to_string()),
    ("model", |o, _| o.cell.server.model.clone()),
    // Recognised where it ran; as the file names it where it did not.
    ("engine", |o, _| {
        let ran = o.row.as_ref().and_then(|r| r.figures.engine.as_ref());
        figure_cell(ran.or(o.cell.server.engine.as_ref()))
    }),
    ("container", |o, _| match &o.cell.server.place {
        EnginePlace::Container(name) => name.clone(),
        EnginePlace::Image(_) => String::new(),
    }),
    ("image", |o, _| match &o.cell.server.place {
        EnginePlace::Container(_) => String::new(),
        EnginePlace::Image(preset) => figure_cell(preset.image.as_ref()),
    }),
    ("input_len", |o, _| o.cell.load.input_len.to_string()),
    ("output_len", |o, _| o.cell.load.output_len.to_string()),
    ("batch_size", |o, _| figure_cell(o.cell.load.batch_size)),
    ("request_rate", |o, _| figure_cell(o.cell.load.request_rate)),
    ("bench", |o, _| o.cell.load.bench.as_str().into()),
    ("dtype", setting),
    ("quantization", setting),
    ("kv_cache_dtype", setting),
    ("tensor_parallel_size", setting),
    ("gpu_memory_utilization", setting),
    ("max_model_len", setting),
    ("engine_args", |o, _| o.cell.server.engine_args.join(" ")),
    ("status", |o, _| o.status_word().into()),
    ("cause", |o, _| of_row(o, |r| r.cause.map(RowCause::as_str))),
    ("phase", |o, _| of_row(o, |r| r.phase.map(RowPhase::as_str))),
    ("message", |o, _| of_row(o, |r| r.message.clone())),
    ("attempt", |o, _| of_row(o, |r| Some(r.attempt))),
    ("took_s", |o, _| of_row(o, |r| Some(r.took_s))),
    ("peak_gib", figure),
    ("baseline_gib", |o, _| {
        of_row(o, |r| r.figures.baseline_bytes.map(to_gib))
    }),
    ("model_weights_gib", figure),
    ("kv_cache_gib", |o, _| {
        of_row(o, |r| r.figures.kv_cache_bytes.map(to_gib))
    }),
    ("kv_pool_gib", figure),
    ("kv_pool_tokens", figure),
    ("activations_gib", figure),
    ("overhead_gib", figure),
    ("unexplained_gib", figure),
    ("mean_latency_ms", figure),
    ("tokens_per_second", figure),
    ("requests_per_second", figure),
    ("ttft_mean_ms", figure),
    ("tpot_mean_ms", figure),
    ("requests_completed", figure),
    ("requests_failed", figure),
    ("simulated", |o, _| of_row(o, |r| Some(r.figures.simulated))),
    ("memory_backend", |o, _| {
        of_row(o, |r| r.figures.memory_backend.clone())
    }),
    ("engine_version", |o, _| {
        of_row(o, |r| r.figures.engine_version.clone())
    }),
    ("profile", |o, _| of_row(o, |r| r.profile.clone())),
    // The bench that ran, where `bench` is `auto`.
    ("bench_run", |o, _| of_row(o, |r| r.figures.bench.clone())),
    ("repeats", |o, _| o.cell.load.repeats.to_string()),
    ("num_prompts", |o, _| figure_cell(o.cell.load.num_prompts)),
    ("num_iters", |o, _| figure_cell(o.cell.load.num_iters)),
    ("num_iters_warmup", |o, _| {
        figure_cell(o.cell.load.num_iters_warmup)
    }),
    ("seed", |o, _| figure_cell(o.cell.load.seed)),
    ("model_params", architecture),
    ("num_layers", architecture),
    ("num_heads", architecture),
    ("num_kv_heads", architecture),
    ("head_dim", architecture),
    ("hidden_size", architecture),
    ("mean_latency_stddev_ms", |o, _| {
        of_row(o, |r| r.figures.mean_latency_stddev_ms)
    }),
    ("tokens_per_second_stddev", |o, _| {
        of_row(o, |r| r.figures.tokens_per_second_stddev)
    }),
    ("peak_stddev_gib", |o, _| {
        of_row(o, |r| r.figures.peak_stddev_bytes.map(|b| b / GIB))
    }),
    ("kv_used_gib", figure),
    ("low_confidence", |o, _| {
        let parts = o.row.iter().flat_map(|r| &r.figures.low_confidence);
        let labels: Vec<&str> = parts.map(|c| c.display_label()).collect();
        labels.join(", ")
    }),
];

/// The table, with a head.
pub fn render_csv(results: &Results) -> Vec<u8> {
    let head: Vec<&str> = COLUMNS.iter().map(|c| c.0).collect();
    let row = |o: &CellOutcome| COLUMNS.iter().map(|(name, write)| write(o, name)).collect();
    write_table(&head, &results.cells.iter().map(row).collect::<Vec<_>>())
}

/// What the journal holds of the cell.
fn of_row<T: ToString>(outcome: &CellOutcome, pick: fn(&CellRow) -> Option<T>) -> String {
    figure_cell(outcome.row.as_ref().and_then(pick))
}

/// The setting of this name.
fn setting(outcome: &CellOutcome, name: &str) -> String {
    let settings = outcome.cell.server.settings.named();
    let mut named = settings.into_iter().filter(|(own, _)| *own == name);
    figure_cell(named.next().map(|(_, value)| value))
}

/// The figure that the report's table has under this key.
fn figure(outcome: &CellOutcome, key: &str) -> String {
    let figure = SWEEP_FIGURES.iter().find(|f| f.key == key);
    let known = figure.zip(outcome.row.as_ref());
    figure_cell(known.and_then(|(f, row)| f.value_of(&row.figures)))
}

/// A number of the model by the file.
fn architecture(outcome: &CellOutcome, name: &str) -> String {
    figure_cell(outcome.cell.server.architecture.get(name))
}
