//! Messages about the KV pool: tokens, blocks, block size, concurrency.

use super::readings::{Line, Readings};
use super::settings::{Settings, Trust};
use crate::engine::facts::FactValue;
use crate::engine::log::figures::{after, gib_after, holds, number, number_after, number_before};

/// Reads the KV pool's figures of `line`.
pub fn read(line: &Line<'_>, readings: &mut Readings, settings: &mut Settings) {
    if !holds(
        line.text,
        &["cache", "oncurrency", "lock", " len", "page size"],
    ) {
        return;
    }
    tokens(line, readings, settings);
    concurrency(line, readings, settings);
    blocks(line, readings, settings);
    block_size(line, settings);
    too_small(line, readings, settings);
    if let Some(rest) = after(line.text, "Auto-fit max_model_len: reduced from ") {
        settings.set_count(
            "max_model_len",
            number_after(rest, " to ").map(|n| n.value),
            Trust::Adjusted,
            line,
            "Auto-fit",
        );
    }
    settings.set_count(
        "max_model_len",
        number_after(line.text, "Using max model len ").map(|n| n.value),
        Trust::Used,
        line,
        "Using max model len ",
    );
}

fn tokens(line: &Line<'_>, readings: &mut Readings, settings: &mut Settings) {
    let needle = "KV cache size: ";
    let Some((n, rest)) = after(line.text, needle).and_then(number) else {
        return;
    };
    if !rest.trim_start().starts_with("tokens") {
        return;
    }
    readings.repeated("kv_cache_tokens", n.value, true, line, needle);
    // `CPU KV cache size` since 0.32; before, the CPU backend says GPU too, so GPU tells nothing.
    let device = line
        .text
        .split(needle)
        .next()
        .and_then(|head| head.split_whitespace().next_back());
    if let Some(device) = device.filter(|d| *d != "GPU") {
        settings.set(
            "device_label",
            FactValue::Text(device.to_owned()),
            Trust::Mentioned,
            line,
            needle,
        );
    }
}

/// Reads `Maximum concurrency for N tokens per request: Rx`; false when the line ends before R.
pub fn concurrency(line: &Line<'_>, readings: &mut Readings, settings: &mut Settings) -> bool {
    let needle = "Maximum concurrency for ";
    let Some((tokens, rest)) = after(line.text, needle).and_then(number) else {
        return true;
    };
    let Some(ratio) = number_after(rest, "request: ") else {
        return false;
    };
    readings.repeated("max_concurrency", ratio.value, false, line, needle);
    readings.count("max_concurrency_tokens", Some(tokens.value), line, needle);
    settings.set_count(
        "max_model_len",
        Some(tokens.value),
        Trust::Inferred,
        line,
        needle,
    );
    true
}

fn blocks(line: &Line<'_>, readings: &mut Readings, settings: &mut Settings) {
    let text = line.text;
    let needle = " blocks: ";
    // `# cuda blocks: 88952, # CPU blocks: 0`; the label is the device's name, and with `cpu` in
    // small letters the first number is the KV pool and the second one swap space.
    let mut parts = text.match_indices(needle).filter_map(|(at, _)| {
        let label = text[..at].rsplit_once("# ").map(|(_, label)| label)?;
        let count = number(&text[at + needle.len()..])?.0;
        (!label.contains(' ')).then_some((label, count.value))
    });
    if let Some((label, count)) = parts.next() {
        let swap = parts.next().map(|(_, swap)| swap);
        let host = label.eq_ignore_ascii_case("cpu") || label == "device";
        let key = if host {
            "num_device_blocks"
        } else {
            "num_gpu_blocks"
        };
        readings.count(key, Some(count), line, needle);
        readings.count("num_cpu_blocks", swap, line, needle);
        settings.set(
            "device_label",
            FactValue::Text(label.to_owned()),
            Trust::Used,
            line,
            needle,
        );
    }
    let needle = "after num_gpu_blocks is: ";
    if let Some((n, _)) = after(text, needle).and_then(number) {
        // Every data-parallel engine has its own pool; the API server prints for all of them.
        let mut line = *line;
        if let Some(engine) = number_after(text, "Engine ") {
            line.origin.dp = Some(engine.value as u32);
        }
        readings.count("num_gpu_blocks", Some(n.value), &line, needle);
    }
    let needle = "Overriding num_gpu_blocks=";
    if let Some((profiled, rest)) = after(text, needle).and_then(number) {
        if let Some(forced) = number_after(rest, "num_gpu_blocks_override=") {
            // The CUDA graph profiler overrides 0 blocks for itself; the user did nothing.
            if profiled.value > 0.0 {
                readings.count("num_gpu_blocks", Some(forced.value), line, needle);
                settings.set_count(
                    "num_gpu_blocks_override",
                    Some(forced.value),
                    Trust::Adjusted,
                    line,
                    needle,
                );
            }
        }
    }
    settings.set_count(
        "padding_layers",
        number_before(text, " padding layers, may waste").map(|n| n.value),
        Trust::Used,
        line,
        "padding layers",
    );
}

/// Messages that name the block size.
pub const BLOCK_SIZE: &[(&str, Trust)] = &[
    ("etting kv cache block size to ", Trust::Adjusted),
    ("Forcing kv cache block size to ", Trust::Adjusted),
    ("Block size is set to ", Trust::Used),
    (" optimal block size is ", Trust::Used),
    ("--block-size ", Trust::Command),
];

fn block_size(line: &Line<'_>, settings: &mut Settings) {
    let text = line.text;
    for (needle, trust) in BLOCK_SIZE {
        settings.set_count(
            "block_size",
            number_after(text, needle).map(|n| n.value),
            *trust,
            line,
            needle,
        );
    }
    let needle = "etting attention block size to ";
    settings.set_count(
        "attention_block_size",
        number_after(text, needle).map(|n| n.value),
        Trust::Used,
        line,
        needle,
    );
    let needle = "Padding mamba page size by ";
    if let Some(n) = number_after(text, needle) {
        settings.set(
            "mamba_page_padding_pct",
            FactValue::Float(n.value),
            Trust::Used,
            line,
            needle,
        );
    }
    if text.contains("Multiplying the GPU KV cache size by the ") {
        settings.set(
            "kv_cache_tokens_of_all_ranks",
            FactValue::Bool(true),
            Trust::Used,
            line,
            "Multiplying",
        );
    }
}

/// The refusals that state the pool's size.
fn too_small(line: &Line<'_>, readings: &mut Readings, settings: &mut Settings) {
    let text = line.text;
    for unit in [" GiB KV cache is needed", " GB KV cache is needed"] {
        readings.figure(
            "kv_cache_needed_gib",
            number_before(text, unit).map(|n| n.value),
            line,
            unit,
        );
    }
    let available = "available KV cache memory (";
    readings.figure(
        "kv_cache_gib_in_error",
        gib_after(text, available),
        line,
        available,
    );
    let stored = "stored in KV cache (";
    readings.count(
        "kv_cache_tokens_in_error",
        number_after(text, stored).map(|n| n.value),
        line,
        stored,
    );
    let estimated = "estimated maximum model length is ";
    readings.count(
        "estimated_max_model_len",
        number_after(text, estimated).map(|n| n.value),
        line,
        estimated,
    );
    let wanted = "max seq len (";
    settings.set_count(
        "max_model_len",
        number_after(text, wanted).map(|n| n.value),
        Trust::Mentioned,
        line,
        wanted,
    );
}
