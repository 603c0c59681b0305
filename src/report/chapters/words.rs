//! Words that chapters share: devices, loads, how a run ended, what is simulated.

use super::document::{flag_at, list_at, text_at};
use crate::capture::{DeviceKind, LimitLevel, Mode, RunEnd};
use crate::engine::{LoadKind, shown_name};
use crate::profile::{Profile, SECOND_ENGINE, describe_cgroup, recording_name};
use crate::report::content::SIMULATED_SENTENCE;
use crate::report::layout::{
    capitalize_first, counted_noun, format_figure, format_moment, grouped_count,
};
use crate::report::material::{Material, ReportRun, StoredDocument};
use crate::units::Bytes;

/// How a run ended.
pub(in crate::report) fn outcome_label(end: &RunEnd) -> &'static str {
    match end {
        RunEnd::Completed => "completed",
        RunEnd::Interrupted => "interrupted",
        RunEnd::Deadline => "stopped at its deadline",
        RunEnd::ContainerLost(_) => "the container was lost",
        RunEnd::BenchFailed(_) => "the bench failed",
        RunEnd::Failed(_) => "failed",
    }
}

/// How a run ended, and why where it failed.
pub(super) fn describe_end(end: &RunEnd) -> String {
    let why = end.failure().map(|why| format!(": {why}"));
    outcome_label(end).to_owned() + &why.unwrap_or_default()
}

/// The engine and its version: `vllm 0.11.0`.
pub(super) fn engine_label(profile: &Profile) -> String {
    let engine = &profile.engine_metadata;
    engine_words(&engine.engine_type, engine.engine_version.as_deref())
}

/// An engine by its name, and its version.
pub(super) fn engine_words(name: &str, version: Option<&str>) -> String {
    let name = match name {
        "" => "an unknown engine",
        name => shown_name(name),
    };
    version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}"))
}

/// `; begun 2026-11-23T09:42:27Z`, where it is known.
pub(super) fn describe_begin(timestamp: &str) -> Option<String> {
    (!timestamp.is_empty()).then(|| format!("; begun {}", format_moment(timestamp)))
}

/// The model, and the formats of its numbers.
pub(super) fn model_label(profile: &Profile) -> String {
    let dtypes = &profile.dtype_metadata;
    let name = profile.model_info.name.as_deref();
    let mut words = vec![name.unwrap_or("unknown model").to_owned()];
    words.extend(dtypes.weights.clone());
    words.extend(dtypes.quantization.iter().map(|q| format!("{q} quantized")));
    let kv = dtypes.kv_cache.as_ref();
    let kv = kv.filter(|kv| dtypes.weights.as_ref() != Some(kv));
    words.extend(kv.map(|kv| format!("KV {kv}")));
    words.join(", ")
}

/// The measured devices: `2 × NVIDIA H100, 79.6 GiB each`.
pub(super) fn devices_label(profile: &Profile) -> String {
    let devices = &profile.gpu_info.devices;
    let Some(first) = devices.first() else {
        return "no device was measured".into();
    };
    let mut kinds = devices.iter().map(|d| (&d.name, d.total_bytes));
    let same = kinds.all(|kind| kind == (&first.name, first.total_bytes));
    let name = match (devices.len(), same) {
        (1, _) => first.name.clone(),
        (n, true) => format!("{n} × {}", first.name),
        (n, false) => return format!("{n} devices of several kinds"),
    };
    let each = if devices.len() > 1 { " each" } else { "" };
    match first.total_bytes.map(Bytes) {
        Some(total) if first.kind == DeviceKind::Gpu => format!("{name}, {total}{each}"),
        Some(total) => match &first.limit_level {
            Some(LimitLevel::Cgroup(path)) => {
                format!("{name}, at most {total} ({})", describe_cgroup(path))
            }
            _ => format!("{name}, at most {total}"),
        },
        None => name,
    }
}

/// What read the memory.
pub(super) fn backend_label(profile: &Profile) -> String {
    let backend = &profile.metadata.memory_backend;
    match recording_name(backend) {
        Some(file) => format!("played back from {file}"),
        None if backend.name.is_empty() => String::new(),
        None => format!("read by {}", backend.name),
    }
}

/// The load: `latency bench, 256 tokens in, 128 out, batch 8`.
pub(super) fn load_label(profile: &Profile) -> String {
    let request = &profile.parameters;
    if matches!(request.bench.as_str(), "none" | "") {
        return "none of plimsoll's own: only watched".into();
    }
    let w = &request.effective_load();
    // A prompt that was given has as many tokens as the probe counted.
    let counted = profile.torch_memory.as_ref().map(|t| t.load.prompt_tokens);
    let input = match &w.prompt {
        None => Some(u64::from(w.input_len)),
        Some(_) => counted,
    };
    let input = input.map(|n| format!("{} tokens in", grouped_count(n)));
    let prompts = w.num_prompts.map(|n| grouped_count(n.into()));
    let mut words = vec![format!("{} bench", request.bench)];
    words.push(input.unwrap_or_else(|| "a given prompt".into()));
    words.push(format!("{} out", grouped_count(w.output_len.into())));
    words.extend(w.batch_size.map(|b| format!("batch {b}")));
    words.extend(prompts.map(|n| format!("{n} prompts")));
    words.extend(w.max_concurrency.map(|n| format!("concurrency {n}")));
    let rate = w.request_rate.map(format_figure);
    words.extend(rate.map(|rate| format!("{rate} requests/s")));
    words.join(", ")
}

/// How plimsoll came to the engine.
pub(in crate::report) fn mode_label(profile: &Profile) -> &'static str {
    match profile.metadata.mode {
        Mode::Started if profile.metadata.shared_start.is_some() => {
            "started by plimsoll for several runs: its start-up was observed before this one"
        }
        Mode::Serving => "attached to an engine that was already serving",
        Mode::Idle if (profile.findings.iter()).any(|f| f.code == SECOND_ENGINE) => {
            "the bench loaded a second engine beside the one that serves"
        }
        Mode::Idle => "idle container: the bench loaded the engine",
        Mode::Started => "started by plimsoll: the engine's start-up was observed",
    }
}

/// What is simulated in this run.
pub(super) fn simulated_part(profile: &Profile) -> Option<&'static str> {
    let engine = profile.engine_metadata.simulated;
    let device = profile.metadata.memory_backend.simulated;
    match (engine, device) {
        (true, true) => Some("the engine and the GPU are simulated"),
        (true, false) => Some("the engine is simulated"),
        (false, true) => Some("the GPU is simulated"),
        (false, false) => (profile.metadata.simulated).then_some("a part of it is simulated"),
    }
}

/// What is simulated in all that was read.
pub(super) fn simulated_parts(material: &Material) -> Option<String> {
    let runs = material.runs.iter();
    let parts: Vec<&str> = runs.filter_map(|r| simulated_part(&r.profile)).collect();
    let all = material.runs.len();
    match (parts.first(), parts.len()) {
        (None, _) => {}
        (Some(what), some) if some == all => return Some((*what).to_owned()),
        (Some(_), some) => return Some(format!("{some} of {all} runs are simulated")),
    }
    let cells = material.sweeps.iter();
    let cells = cells.flat_map(|s| list_at(&s.document, "/cells", usize::MAX));
    // A cell without figures has no device that it ran on.
    let cells = cells.filter(|cell| cell.get("status").and_then(|s| s.as_str()) == Some("done"));
    let marks = cells.filter_map(|cell| cell.pointer("/row/figures/simulated")?.as_bool());
    let marks: Vec<bool> = marks.collect();
    let simulated = marks.iter().filter(|mark| **mark).count();
    if simulated > 0 && simulated < marks.len() {
        let all = marks.len();
        return Some(format!("{simulated} of {all} measured cells are simulated"));
    }
    let documents = material.asked_documents().into_iter();
    let mut documents = documents.flat_map(|(_, of_kind)| of_kind);
    let is_simulated = simulated > 0 || documents.any(|d| flag_at(&d.document, "/simulated"));
    is_simulated.then(|| SIMULATED_SENTENCE.to_owned())
}

/// A title: what was measured.
pub(super) fn default_title(material: &Material) -> String {
    let first = |documents: &[StoredDocument], kind: &str| match documents {
        [one] => {
            let name = one.document.get("name").and_then(|name| name.as_str());
            let name = name.filter(|n| !n.is_empty()).map(str::to_owned);
            let places = ["/container", "/model", "/image"];
            let place = places.iter().find_map(|key| text_at(&one.document, key));
            let place = place.map(|place| format!("of {place}"));
            let what = name.or(place).unwrap_or_else(|| format!("in {}", one.name));
            Some(format!("{} {what}", capitalize_first(kind)))
        }
        [] => None,
        many => Some(format!("{} {kind}s", many.len())),
    };
    let counts = material.document_counts();
    if counts.len() > 1 {
        let runs = Some((material.runs.len(), "run")).filter(|(n, _)| *n > 0);
        let all = counts.into_iter().chain(runs);
        let words: Vec<String> = all.map(|(n, word)| counted_noun(n, word)).collect();
        return format!("Results: {}", words.join(", "));
    }
    if let [(n, "other document")] = counts[..] {
        let all = counted_noun(n + material.runs.len(), "document");
        return format!("Results: {all}");
    }
    let documents = material.asked_documents().into_iter();
    let mut titles = documents.filter_map(|(kind, of_kind)| first(of_kind, kind));
    if let Some(title) = titles.next() {
        return title;
    }
    let model = |p: &Profile| p.model_info.name.clone();
    match material.runs.as_slice() {
        [one] => {
            let model = model(&one.profile).unwrap_or_else(|| "an unknown model".into());
            format!("Memory of {model} on {}", engine_label(&one.profile))
        }
        [a, b] if material.compare => format!("{} against {}", b.name, a.name),
        [] => "Memory of earlier runs".into(),
        [first, others @ ..] => {
            let same = model(&first.profile);
            let is_same = |r: &ReportRun| r.profile.model_info.name == same;
            let (n, same) = (material.runs.len(), same.as_ref());
            match same.filter(|_| others.iter().all(is_same)) {
                Some(model) => format!("Memory of {model}: {n} runs"),
                None => format!("Memory of {n} runs"),
            }
        }
    }
}

/// What `tokens_per_second` counts.
pub(super) fn tokens_unit(profile: &Profile) -> &'static str {
    match &profile.latency_stats {
        None => "tokens/s",
        Some(_) if counts_prompts(profile) => "tokens/s, prompt and generated",
        Some(_) => "generated tokens/s",
    }
}

/// Whether `tokens_per_second` counts the tokens of prompts, too.
pub(super) fn counts_prompts(profile: &Profile) -> bool {
    profile.latency_stats.as_ref().is_some_and(|l| {
        let mut rates = l.repeats.iter().map(|r| r.result.output_tokens_per_second);
        l.bench == LoadKind::Throughput && rates.all(|rate| rate.is_none())
    })
}

/// What a latency is of.
pub(super) fn latency_unit(profile: &Profile) -> &'static str {
    match profile.latency_stats.as_ref().map(|l| l.bench) {
        Some(LoadKind::Latency | LoadKind::Probe) => "ms per batch",
        Some(_) => "ms per request",
        None => "ms",
    }
}

/// How sure, in a word: `high`, `medium`, `low`, `residual`, `unknown`.
pub(in crate::report) fn confidence_level(confidence: &str) -> &'static str {
    match confidence {
        c if c.starts_with("high") => "high",
        c if c.starts_with("medium") => "medium",
        c if c.starts_with("low") => "low",
        "calculated_residual" => "residual",
        _ => "unknown",
    }
}

/// Whether a part is drawn as less than sure.
pub(super) fn is_low_confidence(confidence: &str) -> bool {
    !matches!(confidence_level(confidence), "high" | "medium")
}
