//! The top of the page: which run's memory this is, under which load, read by what.

use super::page::ProfilePage;
use crate::capture::{DeviceKind, LimitLevel, RunEnd};
use crate::profile::{Profile, advise_on_profile, describe_cgroup, recording_name};
use crate::report::chapters::{mode_label, outcome_label};
use crate::report::layout::{counted_noun, format_duration, grouped_count};
use crate::units::Bytes;

/// Container, engine, model; load, mode, devices, the run.
pub(super) fn write_headline(page: &mut ProfilePage, profile: &Profile) {
    let container = &profile.metadata.container;
    let name = match (container.name.as_str(), container.id.get(..12)) {
        ("", Some(id)) => id,
        ("", None) => "unnamed container",
        (name, _) => name,
    };
    let mut title = page.paint_text(page.theme.title, &page.clean_text(name));
    for (tag, style) in tags(profile, page) {
        title.push_str("  ");
        title.push_str(&page.paint_text(style, tag));
    }
    page.write_line(&title);

    let engine = &profile.engine_metadata;
    let dtypes = &profile.dtype_metadata;
    let version = engine.engine_version.as_deref();
    let kind = match engine.engine_type.as_str() {
        "" => "engine",
        kind => kind,
    };
    let mut what = vec![
        format!("{kind} {}", version.unwrap_or(page.glyphs.dash)),
        profile
            .model_info
            .name
            .clone()
            .unwrap_or_else(|| format!("model {}", page.glyphs.dash)),
    ];
    what.extend(dtypes.weights.clone());
    what.extend(
        dtypes
            .quantization
            .as_ref()
            .map(|q| format!("{q} quantized")),
    );
    what.extend(
        dtypes
            .kv_cache
            .as_ref()
            .filter(|kv| dtypes.weights.as_ref() != Some(kv))
            .map(|kv| format!("KV {kv}")),
    );
    let what: Vec<String> = what.iter().map(|w| page.clean_text(w)).collect();
    page.write_line(&what.join(page.glyphs.dot));
    page.write_line("");
    if let Some(why) = profile.metadata.outcome.failure() {
        page.write_pair("failed", why);
        for advice in advise_on_profile(profile) {
            page.write_pair("change", &advice);
        }
        page.write_line("");
    }
    page.write_pair("load", &describe_load(profile, page));
    page.write_pair("mode", mode_label(profile));
    page.write_pair("memory", &describe_memory(profile, page));
    let run = format!(
        "{}, {}, {}",
        profile.metadata.timestamp,
        format_duration(profile.metadata.duration_s),
        outcome_label(&profile.metadata.outcome)
    );
    page.write_pair("run", &run);
}

fn tags(profile: &Profile, page: &ProfilePage) -> Vec<(&'static str, anstyle::Style)> {
    let mut tags = Vec::new();
    if profile.engine_metadata.simulated {
        tags.push(("SIMULATED ENGINE", page.theme.warning));
    }
    if profile.metadata.memory_backend.simulated {
        tags.push(("SIMULATED GPU", page.theme.warning));
    }
    if profile.metadata.simulated && tags.is_empty() {
        tags.push(("SIMULATED", page.theme.warning));
    }
    match &profile.metadata.outcome {
        RunEnd::Completed => {}
        RunEnd::Interrupted => tags.push(("INTERRUPTED", page.theme.warning)),
        RunEnd::Deadline => tags.push(("DEADLINE PASSED", page.theme.error)),
        RunEnd::ContainerLost(_) => tags.push(("CONTAINER LOST", page.theme.error)),
        RunEnd::BenchFailed(_) => tags.push(("BENCH FAILED", page.theme.error)),
        RunEnd::Failed(_) => tags.push(("FAILED", page.theme.error)),
    }
    tags
}

fn describe_load(profile: &Profile, page: &ProfilePage) -> String {
    let request = &profile.parameters;
    if request.bench == "none" || request.bench.is_empty() {
        return "none of our own: observed only".into();
    }
    let w = &request.workload;
    let mut parts = vec![format!("{} bench", request.bench)];
    if let Some(n) = profile.latency_stats.as_ref().map(|l| l.repeats.len()) {
        parts[0].push_str(&format!(", {}", counted_noun(n, "repeat")));
    }
    // A prompt that was given has as many tokens as the probe counted.
    let counted = profile.torch_memory.as_ref().map(|t| t.load.prompt_tokens);
    let input = match (&w.prompt, counted) {
        (None, _) => grouped_count(w.input_len.into()),
        (Some(_), Some(n)) => grouped_count(n),
        (Some(_), None) => page.glyphs.dash.to_owned(),
    };
    parts.push(format!(
        "{input} tokens in, {} out",
        grouped_count(w.output_len.into())
    ));
    parts.extend(request.batch_size().map(|b| format!("batch {b}")));
    parts.extend(
        w.num_prompts
            .map(|n| format!("{} prompts", grouped_count(n.into()))),
    );
    parts.extend(w.max_concurrency.map(|n| format!("{n} at once")));
    parts.extend(w.request_rate.map(|r| format!("{r} requests/s")));
    parts.join(page.glyphs.dot)
}

fn describe_memory(profile: &Profile, page: &ProfilePage) -> String {
    let devices = &profile.gpu_info.devices;
    let backend = &profile.metadata.memory_backend.name;
    let Some(first) = devices.first() else {
        return format!("{} (no device was measured)", page.glyphs.dash);
    };
    let same = devices
        .iter()
        .all(|d| d.name == first.name && d.total_bytes == first.total_bytes);
    let mut text = match (devices.len(), same) {
        (1, _) => first.name.clone(),
        (n, true) => format!("{n} {} {}", page.glyphs.times, first.name),
        (n, false) => format!("{n} devices"),
    };
    if same {
        if let Some(total) = first.total_bytes {
            let of = match first.kind {
                DeviceKind::Gpu => "",
                DeviceKind::HostCgroup => "at most ",
            };
            text.push_str(&format!(", {of}{}", Bytes(total)));
            if let Some(LimitLevel::Cgroup(path)) = &first.limit_level {
                text.push_str(&format!(" ({})", page.clean_text(&describe_cgroup(path))));
            }
        }
    }
    match recording_name(&profile.metadata.memory_backend) {
        Some(file) => text.push_str(&format!(", played back from {}", page.clean_text(file))),
        None => text.push_str(&format!(", read by {backend}")),
    }
    text
}
