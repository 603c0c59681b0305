//! Many runs as a table of the summary: one line each.

use super::Sources;
use super::figures::{Figures, numbers, words as column};
use super::summary::KV_TOKENS;
use super::words;
use crate::breakdown::Component;
use crate::report::content::{Block, Cell, Column, Grid};
use crate::report::layout::counted;
use crate::report::material::Run;

pub(super) fn blocks(blocks: &mut Vec<Block>, runs: &[Run], sources: &mut Sources) {
    let columns: Vec<Column> = vec![
        column("run", "run"),
        column("model", "model"),
        column("engine", "engine"),
        column("memory", "memory"),
        column("load", "load"),
        numbers("peak, GiB", "peak_gib"),
        numbers("weights, GiB", "weights_gib"),
        numbers("KV pool, GiB", "kv_cache_gib"),
        numbers("KV pool, tokens", "kv_cache_tokens"),
        numbers("activations, GiB", "activations_gib"),
        numbers("overhead, GiB", "overhead_gib"),
        numbers("unexplained, GiB", "unexplained_gib"),
        numbers("tokens/s", "tokens_per_second"),
        numbers("mean latency, ms", "mean_latency_ms"),
        column("ended", "outcome"),
    ];
    let rows = runs.iter().map(|run| {
        let p = &run.profile;
        let l = p.latency_stats.as_ref();
        let tokens = p.vllm_internal_metrics.total_gpu_kv_cache_tokens;
        let mut f = Figures {
            sources,
            run,
            many: true,
        };
        let (engine, bench) = ("the engine's own word", "the bench's result");
        let name = match words::pretended(p) {
            Some(_) => format!("{} (simulated)", run.name),
            None => run.name.clone(),
        };
        vec![
            Cell::text(name),
            Cell::text(words::model(p)),
            Cell::text(words::engine(p)),
            Cell::text(words::devices(p)),
            Cell::text(words::load(p)),
            f.peak(),
            f.part(Component::ModelWeights),
            f.part(Component::KvCache),
            f.told(
                "KV pool, tokens",
                engine,
                (tokens.map(|n| n as f64), KV_TOKENS),
            ),
            f.part(Component::Activations),
            f.overhead(),
            f.part(Component::Unexplained),
            f.told(
                "tokens/s",
                bench,
                (l.and_then(|l| l.tokens_per_second), super::summary::TOKENS),
            ),
            f.told(
                "mean latency, ms",
                bench,
                (l.and_then(|l| l.mean_latency_ms), super::summary::LATENCY),
            ),
            Cell::text(words::outcome(&p.metadata.outcome)),
        ]
    });
    blocks.push(Block::Table(Grid {
        id: "runs".into(),
        caption: counted(runs.len(), "run"),
        columns,
        rows: rows.collect(),
    }));
    let brief = runs.iter().filter(|r| !r.in_full).count();
    if brief > 0 {
        blocks.push(Block::Text(format!(
            "Timelines, repeats and logs are shown of the first {}; the other {brief} runs have theirs in a report of their own: name the profile.",
            counted(runs.len() - brief, "run")
        )));
    }
}
