//! Many runs as a table of the summary: one line each.

use super::Sources;
use super::figures::SourcedFigures;
use super::summary::{BENCH, KV_TOKENS, LATENCY, TOKENS};
use super::words;
use crate::breakdown::Component;
use crate::report::content::{
    ContentBlock, Grid, TableCell, TableColumn, number_column, text_column as column,
};
use crate::report::layout::counted_noun;
use crate::report::material::ReportRun;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn add_run_blocks(
    blocks: &mut Vec<ContentBlock>,
    runs: &[ReportRun],
    sources: &mut Sources,
) {
    let counts_prompts = |run: &ReportRun| words::counts_prompts(&run.profile);
    let some_count_prompts = runs.iter().any(counts_prompts);
    let mut columns: Vec<TableColumn> = vec![
        column("run", "run"),
        column("model", "model"),
        column("engine", "engine"),
        column("memory", "memory"),
        column("load", "load"),
        number_column("peak, GiB", "peak_gib"),
        number_column("weights, GiB", "weights_gib"),
        number_column("KV pool, GiB", "kv_cache_gib"),
        number_column("KV pool, tokens", "kv_cache_tokens"),
        number_column("activations, GiB", "activations_gib"),
        number_column("overhead, GiB", "overhead_gib"),
        number_column("unexplained, GiB", "unexplained_gib"),
        number_column("generated tokens/s", "tokens_per_second"),
        number_column("mean latency, ms", "mean_latency_ms"),
        column("ended", "outcome"),
    ];
    let rate_at = columns.len() - 3;
    if some_count_prompts {
        let title = "prompt and generated tokens/s";
        columns.insert(rate_at + 1, number_column(title, "total_tokens_per_second"));
    }
    let rows = runs.iter().map(|run| {
        let p = &run.profile;
        let l = p.latency_stats.as_ref();
        let tokens = p.vllm_internal_metrics.total_gpu_kv_cache_tokens;
        let mut f = SourcedFigures {
            sources,
            run,
            many: true,
        };
        let simulated = words::simulated_part(p).map_or("", |_| " (simulated)");
        let rate = (l.and_then(|l| l.tokens_per_second), TOKENS);
        let rate = f.reported_cell("tokens/s", BENCH, rate);
        let (generated, all) = if counts_prompts(run) {
            let why = "the bench counts the tokens of prompts, too";
            (TableCell::missing_cell(why), rate)
        } else {
            let why = "the table's rate of this run is of generated tokens";
            (rate, TableCell::missing_cell(why))
        };
        let tokens = (tokens.map(|n| n as f64), KV_TOKENS);
        let latency = (l.and_then(|l| l.mean_latency_ms), LATENCY);
        let mut row = vec![
            format!("{}{simulated}", run.name).into(),
            words::model_label(p).into(),
            words::engine_label(p).into(),
            words::devices_label(p).into(),
            words::load_label(p).into(),
            f.peak_cell(),
            f.part_cell(Component::ModelWeights),
            f.part_cell(Component::KvCache),
            f.reported_cell("KV pool, tokens", "the engine's own word", tokens),
            f.part_cell(Component::Activations),
            f.overhead_cell(),
            f.part_cell(Component::Unexplained),
            generated,
            f.reported_cell("mean latency, ms", BENCH, latency),
            words::outcome_label(&p.metadata.outcome).into(),
        ];
        if some_count_prompts {
            row.insert(rate_at + 1, all);
        }
        row
    });
    let grid = Grid {
        id: "runs".into(),
        caption: counted_noun(runs.len(), "run"),
        columns,
        rows: rows.collect(),
    };
    let beside = engine_tables(runs, &grid);
    blocks.extend(beside.into_iter().chain([grid]).map(ContentBlock::Table));
    let brief = runs.iter().filter(|r| !r.in_full).count();
    if brief > 0 {
        let full = counted_noun(runs.len() - brief, "run");
        blocks.push(format!("Timelines, repeats and logs are shown of the first {full}; for those of another run name its profile alone.").into());
    }
}

/// Runs of one model under one load on several engines, the engines side by side.
fn engine_tables(runs: &[ReportRun], grid: &Grid) -> Vec<Grid> {
    /// The model and the load of runs.
    type ModelLoad<'a> = (Option<&'a str>, String);
    let mut groups: BTreeMap<ModelLoad, Vec<usize>> = BTreeMap::new();
    for (n, run) in runs.iter().enumerate() {
        let model = run.profile.model_info.name.as_deref();
        let load = words::load_label(&run.profile);
        groups.entry((model, load)).or_default().push(n);
    }
    groups.retain(|(model, _), group| {
        let profiles = group.iter().map(|n| &runs[*n].profile);
        let engines = profiles.map(|p| &p.engine_metadata.engine_type);
        model.is_some() && engines.collect::<BTreeSet<_>>().len() > 1
    });
    let table = |(i, ((model, load), group)): (usize, (ModelLoad, Vec<usize>))| {
        let engines = group.iter().map(|n| {
            let (run, engine) = (&runs[*n], words::engine_label(&runs[*n].profile));
            let label = format!("{engine}, {}", run.name);
            number_column(label, &format!("run{}", n + 1))
        });
        let (first, model) = (column("figure", "name"), model.unwrap_or_default());
        let figures = grid.columns.iter().enumerate().filter(|(_, c)| c.numeric);
        let row = |(c, column): (usize, &TableColumn)| {
            let cells = group.iter().map(|n| grid.rows[*n][c].clone());
            std::iter::once((&column.title).into())
                .chain(cells)
                .collect()
        };
        Grid {
            id: format!("engines_{}", i + 1),
            caption: format!("Engines side by side: {model}, {load}"),
            columns: std::iter::once(first).chain(engines).collect(),
            rows: figures.map(row).collect(),
        }
    };
    groups.into_iter().enumerate().map(table).collect()
}
