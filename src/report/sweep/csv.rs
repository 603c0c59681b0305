//! The results of a sweep as a table for spreadsheets and data frames. Unknown is empty, never 0.

use super::{CellOutcome, Results};
use crate::matrix::{EnginePlace, RowFigures};
use crate::report::chapters::SWEEP_FIGURES;
use crate::report::json::joined;
use crate::report::spreadsheet::write_fields;
use crate::report::tables::ItemFigure;
use crate::units::{GIB, to_gib};
use serde_json::{Value, json};

/// The columns, in order. New ones come at the end.
const COLUMNS: &str = "cell group model engine container image input_len output_len batch_size request_rate bench \
    dtype quantization kv_cache_dtype tensor_parallel_size gpu_memory_utilization max_model_len \
    engine_args status cause phase message attempt took_s peak_gib baseline_gib \
    model_weights_gib kv_cache_gib kv_pool_gib kv_pool_tokens activations_gib overhead_gib \
    unexplained_gib mean_latency_ms tokens_per_second requests_per_second ttft_mean_ms \
    tpot_mean_ms requests_completed requests_failed simulated memory_backend engine_version \
    profile bench_run repeats num_prompts num_iters num_iters_warmup seed model_params \
    num_layers num_heads num_kv_heads head_dim hidden_size mean_latency_stddev_ms \
    tokens_per_second_stddev peak_stddev_gib kv_used_gib low_confidence";

/// The table, with a head.
pub fn render_csv(results: &Results) -> Vec<u8> {
    write_fields(COLUMNS, results.cells.iter().map(cell_fields))
}

/// All that is known of a cell, under the names of the columns: what is asked for, then what the journal holds of it, then
/// what follows from both.
fn cell_fields(outcome: &CellOutcome) -> Value {
    let (cell, row) = (&outcome.cell, outcome.row.as_ref());
    let (server, figures) = (&cell.server, row.map(|row| &row.figures));
    let settings = server.settings.named().into_iter();
    let settings = settings.map(|(name, value)| (name.to_owned(), value.into()));
    // As the report's table has them.
    let of_report = row.iter().flat_map(|row| {
        let value = |figure: &ItemFigure<RowFigures>| json!(figure.value_of(&row.figures));
        SWEEP_FIGURES
            .iter()
            .map(move |figure| (figure.key.to_owned(), value(figure)))
    });
    let (container, image) = match &server.place {
        EnginePlace::Container(name) => (Some(name), None),
        EnginePlace::Image(preset) => (None, preset.image.as_ref()),
    };
    let gib = |bytes: Option<u64>| bytes.map(to_gib);
    let unsure = figures.iter().flat_map(|f| &f.low_confidence);
    let unsure: Vec<&str> = unsure.map(|c| c.display_label()).collect();
    joined([
        json!(server.architecture),
        Value::Object(settings.collect()),
        json!(figures),
        json!(row),
        json!(cell.load),
        Value::Object(of_report.collect()),
        json!({
            "cell": cell.id,
            "group": cell.group,
            "model": server.model,
            // Recognised where it ran; as the file names it where it did not.
            "engine": figures.and_then(|f| f.engine.as_ref()).or(server.engine.as_ref()),
            "container": container,
            "image": image,
            "engine_args": server.engine_args.join(" "),
            "status": outcome.status_word(),
            "baseline_gib": gib(figures.and_then(|f| f.baseline_bytes)),
            "kv_cache_gib": gib(figures.and_then(|f| f.kv_cache_bytes)),
            // The bench that ran, where `bench` is `auto`.
            "bench_run": figures.and_then(|f| f.bench.as_ref()),
            "peak_stddev_gib": figures.and_then(|f| Some(f.peak_stddev_bytes? / GIB)),
            "low_confidence": unsure.join(", "),
        }),
    ])
}
