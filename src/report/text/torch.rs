//! What a probe in the engine's process saw: its own account, operators and layers.

use super::page::ProfilePage;
use crate::engine::torch_probe::{Layer, MeasuredBy, Operator, TorchMemory};
use crate::profile::Profile;
use crate::report::layout::counted_noun;
use crate::report::layout::{Align, TextTable, format_figure, grouped_count, truncate_text};
use crate::units::Bytes;

/// Rows of a table on the page; the document has them all.
const ROWS: usize = 6;
/// Widest name in a table, cells.
const NAME: usize = 40;

/// The process' own account; nothing where no probe ran.
pub(super) fn write_process(page: &mut ProfilePage, profile: &Profile) {
    let Some(memory) = &profile.torch_memory else {
        return;
    };
    let by = match memory.measured_by {
        MeasuredBy::CudaAllocator => "by torch's allocator",
        MeasuredBy::Rss => "on CPU, by resident memory",
    };
    page.write_heading(&format!("Inside the process ({by})"));
    page.write_pair("weights", &weights(memory));
    let cache = &memory.kv_cache;
    let mut text = Bytes(cache.bytes).to_string();
    if let Some(tokens) = cache.tokens {
        let sequences = counted_noun(memory.load.batch_size as usize, "sequence");
        text.push_str(&format!(
            ", {} tokens of {sequences}",
            grouped_count(tokens)
        ));
    }
    if let Some(each) = cache.bytes_per_token {
        text.push_str(&format!(", {} bytes a token", format_figure(each)));
    }
    page.write_pair("KV cache", &text);
    let activations = memory.activation_peak_bytes.map(|all| {
        let mut text = signed(all);
        if let Some(prefill) = memory.prefill_activation_peak_bytes {
            text.push_str(&format!(", for the prompt alone {}", signed(prefill)));
        }
        text
    });
    let path = "torch_memory.activation_peak_bytes";
    page.pair_or_reason("activations", activations, profile, path);
    let unused: Option<i64> = memory
        .devices
        .iter()
        .map(|d| d.reserved_minus_allocated_bytes)
        .try_fold(0i64, |sum, b| sum.checked_add(b?));
    if let Some(unused) = unused {
        let text = format!("{} reserved by the allocator beyond it", signed(unused));
        page.write_pair("unused", &text);
    }
    if let Some(overhead) = memory.multi_gpu_overhead_bytes {
        let text = format!("{} more than on one GPU", signed(overhead));
        page.write_pair("several GPUs", &text);
    }
    let load = &memory.load;
    let text = format!(
        "{} × ({} prompt + {} generated) tokens, {} prompt",
        load.batch_size, load.prompt_tokens, load.generated_tokens, load.prompt
    );
    page.write_pair("load", &text);
}

fn weights(memory: &TorchMemory) -> String {
    let w = &memory.weights;
    let mut text = Bytes(w.bytes).to_string();
    if let Some(n) = memory.model.num_parameters {
        text.push_str(&format!(", {} parameters", grouped_count(n)));
    }
    if let Some(dtype) = &memory.model.dtype {
        text.push_str(&format!(", {dtype}"));
    }
    if let Some(apart) = w.allocator_difference_bytes {
        text.push_str(&format!("; the allocator counts {} more", signed(apart)));
    }
    text
}

fn signed(bytes: i64) -> String {
    crate::units::signed_text(bytes.into())
}

/// Operators and layers that take most; nothing unless they were asked for.
pub(super) fn write_layers(page: &mut ProfilePage, profile: &Profile) {
    let Some(told) = &profile.layer_profile else {
        return;
    };
    let tokens = counted_noun(told.tokens as usize, "token");
    page.write_heading(&format!("Operators (torch.profiler, {tokens})"));
    operators(page, "most memory", &told.operators_by_memory);
    operators(page, "most time", &told.operators_by_time);
    page.write_heading("Layers (one pass over the prompt)");
    let mut largest: Vec<&Layer> = told.layers.iter().collect();
    let size = |l: &Layer| (l.parameter_bytes, l.inner_bytes.unwrap_or(0));
    largest.sort_by_key(|l| std::cmp::Reverse(size(l)));
    let mut table = TextTable::new(&[
        ("largest", Align::Left),
        ("class", Align::Left),
        ("parameters", Align::Right),
        ("output", Align::Right),
        ("inner", Align::Right),
        ("peak", Align::Right),
    ]);
    for layer in largest.iter().take(ROWS) {
        let bytes = |b: Option<u64>| {
            b.map_or_else(|| page.glyphs.dash.to_owned(), |b| Bytes(b).to_string())
        };
        let name =
            |text: &str| truncate_text(&page.clean_text(text), NAME / 2 + 6, page.glyphs.ellipsis);
        table.add_row(vec![
            name(&layer.name),
            name(&layer.class),
            bytes(Some(layer.parameter_bytes)),
            bytes(layer.output_bytes),
            bytes(layer.inner_bytes),
            bytes(layer.peak_bytes),
        ]);
    }
    page.write_table(&table.render_lines());
    write_more(page, told.layers.len(), "layer_profile.layers");
}

fn operators(page: &mut ProfilePage, head: &str, all: &[Operator]) {
    if all.is_empty() {
        return;
    }
    let mut table = TextTable::new(&[
        (head, Align::Left),
        ("calls", Align::Right),
        ("memory", Align::Right),
        ("CPU ms", Align::Right),
        ("GPU ms", Align::Right),
    ]);
    for operator in all.iter().take(ROWS) {
        let ms = |ms: Option<f64>| ms.map_or_else(|| page.glyphs.dash.to_owned(), format_figure);
        let memory = operator.self_memory_bytes;
        table.add_row(vec![
            truncate_text(&page.clean_text(&operator.name), NAME, page.glyphs.ellipsis),
            grouped_count(operator.calls),
            memory.map_or_else(|| page.glyphs.dash.to_owned(), signed),
            ms(operator.self_cpu_ms),
            ms(operator.self_device_ms),
        ]);
    }
    page.write_table(&table.render_lines());
    write_more(page, all.len(), "layer_profile");
}

fn write_more(page: &mut ProfilePage, all: usize, path: &str) {
    if all > ROWS {
        let rest = all - ROWS;
        page.write_aside(&format!("{rest} more in {path}"));
    }
}
