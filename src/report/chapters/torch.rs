//! What a probe in the engine's process measured: its own account, operators and layers.

use super::figures::reason_at_path;
use super::{ShownRun, Sources};
use crate::engine::torch_probe::{Layer, LayerProfile, MeasuredBy, Operator, TorchMemory};
use crate::report::content::{Chapter, ContentBlock, Grid, TableCell, facts_block};
use crate::report::figures::{cell_by, count_cell, figure_cell};
use crate::report::layout::{counted_noun, format_figure, grouped_count};
use crate::report::material::{Material, ReportRun};
use crate::report::tables::TableBuilder;
use crate::units::{Bytes, signed_text, to_gib};

/// Rows of a table; the document has all of them.
const ROWS: usize = 6;

pub(super) fn write_torch_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let mut blocks = Vec::new();
    for at in material.shown_runs() {
        let run = at.run;
        if let Some(memory) = &run.profile.torch_memory {
            let by = super::of_run_text(measured_by(memory), run, at.many);
            blocks.push(by.into());
            blocks.push(facts_block(&at.id("process"), process_facts(run, memory)));
        }
        if let Some(layers) = &run.profile.layer_profile {
            blocks.extend(layer_blocks(layers, at));
        }
    }
    Chapter::of_parts("process", "Inside the process", blocks, Vec::new())
}

fn measured_by(memory: &TorchMemory) -> &'static str {
    match memory.measured_by {
        MeasuredBy::CudaAllocator => "Measured by torch's allocator.",
        MeasuredBy::Rss => "Measured on CPU, by resident memory.",
    }
}

fn process_facts(run: &ReportRun, memory: &TorchMemory) -> Vec<(&'static str, String)> {
    let cache = &memory.kv_cache;
    let mut pool = Bytes(cache.bytes).to_string();
    if let Some(tokens) = cache.tokens.map(grouped_count) {
        let sequences = counted_noun(memory.load.batch_size as usize, "sequence");
        pool += &format!(", {tokens} tokens of {sequences}");
    }
    if let Some(each) = cache.bytes_per_token {
        pool += &format!(", {} bytes a token", format_figure(each));
    }
    let activations = match memory.activation_peak_bytes {
        Some(all) => {
            let prefill = memory.prefill_activation_peak_bytes;
            let prefill = prefill.map(|b| format!(", for the prompt alone {}", signed(b)));
            format!("{}{}", signed(all), prefill.unwrap_or_default())
        }
        None => {
            let path = "torch_memory.activation_peak_bytes";
            format!("— ({})", reason_at_path(&run.profile, path))
        }
    };
    let mut facts = vec![
        ("weights", describe_weights(memory)),
        ("KV cache", pool),
        ("activations", activations),
    ];
    let mut unused = (memory.devices.iter()).map(|d| d.reserved_minus_allocated_bytes);
    let unused = unused.try_fold(0i64, |sum, b| sum.checked_add(b?));
    let unused = unused.map(|b| format!("{} reserved by the allocator beyond it", signed(b)));
    facts.extend(unused.map(|text| ("unused", text)));
    let several = memory.multi_gpu_overhead_bytes;
    let several = several.map(|b| format!("{} more than on one GPU", signed(b)));
    facts.extend(several.map(|text| ("several GPUs", text)));
    let load = &memory.load;
    let text = format!(
        "{} × ({} prompt + {} generated) tokens, {} prompt",
        load.batch_size, load.prompt_tokens, load.generated_tokens, load.prompt
    );
    facts.push(("load", text));
    facts
}

fn describe_weights(memory: &TorchMemory) -> String {
    let w = &memory.weights;
    let mut text = Bytes(w.bytes).to_string();
    if let Some(n) = memory.model.num_parameters {
        text += &format!(", {} parameters", grouped_count(n));
    }
    if let Some(dtype) = &memory.model.dtype {
        text += &format!(", {dtype}");
    }
    if let Some(apart) = w.allocator_difference_bytes {
        text += &format!("; the allocator counts {} more", signed(apart));
    }
    text
}

fn signed(bytes: i64) -> String {
    signed_text(bytes.into())
}

/// Operators and layers that take most.
fn layer_blocks(profile: &LayerProfile, at: ShownRun<'_>) -> Vec<ContentBlock> {
    let tokens = counted_noun(profile.tokens as usize, "token");
    let mut blocks = Vec::new();
    for (word, most, operators) in [
        ("memory", "most memory", &profile.operators_by_memory),
        ("time", "most time", &profile.operators_by_time),
    ] {
        if operators.is_empty() {
            continue;
        }
        let id = at.id(&format!("operators_{word}"));
        let caption = format!("Operators of {most} (torch.profiler, {tokens})");
        blocks.push(ContentBlock::Table(operators_table(id, caption, operators)));
        blocks.extend(more_text(operators.len(), "layer_profile"));
    }
    let mut largest: Vec<&Layer> = profile.layers.iter().collect();
    let size = |l: &Layer| (l.parameter_bytes, l.inner_bytes.unwrap_or(0));
    largest.sort_by_key(|l| std::cmp::Reverse(size(l)));
    let grid = TableBuilder::of_items(largest.into_iter().take(ROWS))
        .words("layer", "layer", |layer| &layer.name)
        .words("class", "class", |layer| &layer.class)
        .figures("parameters", "parameters_gib", |layer| {
            bytes_cell(Some(layer.parameter_bytes))
        })
        .figures("output", "output_gib", |layer| {
            bytes_cell(layer.output_bytes)
        })
        .figures("inner", "inner_gib", |layer| bytes_cell(layer.inner_bytes))
        .figures("peak", "peak_gib", |layer| bytes_cell(layer.peak_bytes))
        .grid(at.id("layers"), "Largest layers (one pass over the prompt)");
    blocks.push(ContentBlock::Table(grid));
    blocks.extend(more_text(profile.layers.len(), "layer_profile.layers"));
    blocks
}

fn operators_table(id: String, caption: String, operators: &[Operator]) -> Grid {
    let none = "the profiler has no such figure";
    TableBuilder::of_items(operators.iter().take(ROWS))
        .words("operator", "operator", |o| &o.name)
        .figures("calls", "calls", |o| count_cell(o.calls))
        .figures("memory", "memory_bytes", |o| {
            let bytes = o.self_memory_bytes;
            let text = |_| signed(bytes.unwrap_or(0));
            cell_by(bytes.map(|b| b as f64), none, text)
        })
        .figures("CPU ms", "cpu_ms", |o| figure_cell(o.self_cpu_ms, none))
        .figures("GPU ms", "gpu_ms", |o| figure_cell(o.self_device_ms, none))
        .grid(id, caption)
}

fn bytes_cell(bytes: Option<u64>) -> TableCell {
    let text = |_| Bytes(bytes.unwrap_or(0)).to_string();
    cell_by(bytes.map(to_gib), "not measured for this layer", text)
}

fn more_text(all: usize, path: &str) -> Option<ContentBlock> {
    let more = all.checked_sub(ROWS).filter(|n| *n > 0)?;
    Some(format!("{more} more in {path}.").into())
}
