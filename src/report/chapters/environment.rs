//! Where it ran and how it was read: host, container, engine, backend, sampling, logs.

use super::Sources;
use super::words;
use crate::profile::Profile;
use crate::report::content::{Chapter, ContentBlock, listing_block};
use crate::report::layout::{format_duration, format_figure, grouped_count};
use crate::report::material::{Material, ReportRun};
use crate::report::tables::{TableBuilder, word_or_reason};
use crate::units::Bytes;

/// A fact of a run, and why it is not known where it is not.
type EnvironmentFact = (&'static str, Option<String>, &'static str);

pub(super) fn write_environment_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let shown: Vec<&ReportRun> = material.runs.iter().filter(|r| r.in_full).collect();
    if shown.is_empty() {
        return Vec::new();
    }
    let all: Vec<_> = (shown.iter().map(|r| environment_facts(&r.profile))).collect();
    let mut table = TableBuilder::of_items(0..all[0].len()).words("fact", "fact", |i| all[0][i].0);
    for (n, (run, facts)) in shown.iter().zip(&all).enumerate() {
        let (title, key) = match shown.len() {
            1 => ("value", "value".to_owned()),
            _ => (run.name.as_str(), format!("run_{}", n + 1)),
        };
        table = table.cells(title, &key, |i| {
            let (_, text, why) = &facts[i];
            word_or_reason(text.as_deref(), why)
        });
    }
    let grid = table.grid("environment", "Where it ran and how it was read");
    let details = vec![ContentBlock::Table(grid)];
    Chapter::of_parts("environment", "Environment", Vec::new(), details)
}

/// Every fact in the same order for every run.
fn environment_facts(p: &Profile) -> Vec<EnvironmentFact> {
    let m = &p.metadata;
    let (host, container, backend) = (&m.host, &m.container, &m.memory_backend);
    let known = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
    let size = |bytes: Option<u64>| bytes.map(|b| Bytes(b).to_string());
    let (no_kernel, no_daemon) = ("not reported by the kernel", "not reported by the daemon");
    let (no_limit, no_device) = (
        "the container has no limit of its own",
        "no device was measured",
    );
    let devices = p.gpu_info.devices.iter();
    let devices: Vec<String> = devices.map(|d| format!("{} ({})", d.name, d.id)).collect();
    let version = backend.version.as_ref().map(|v| format!(", {v}"));
    let backend_name = backend.name.clone() + &version.unwrap_or_default();
    let recognised = known(&p.engine_metadata.evidence);
    let ended = words::describe_end(&m.outcome);
    let program = format!("{}, schema {}", p.profiler_version, p.schema_version);
    vec![
        ("run", known(&m.run_id), "not in the profile"),
        ("plimsoll", Some(program), ""),
        ("host", known(&host.hostname), "unknown"),
        ("kernel", Some(format!("{} {}", host.kernel, host.arch)), ""),
        ("processors", Some(host.cpus.to_string()), ""),
        ("host memory", size(host.memory_bytes), no_kernel),
        ("Docker", host.docker_version.clone(), no_daemon),
        ("container", known(&container.name), "it has no name"),
        ("image", known(&container.image), no_daemon),
        ("image id", known(&container.image_id), no_daemon),
        ("memory limit", size(container.memory_limit_bytes), no_limit),
        ("/dev/shm", size(container.shm_size_bytes), no_daemon),
        ("engine", Some(words::engine_label(p)), ""),
        ("recognised by", recognised, "unknown"),
        ("mode", Some(words::mode_label(p).to_owned()), ""),
        ("devices", known(&devices.join(", ")), no_device),
        ("memory backend", Some(backend_name), ""),
        ("chosen because", known(&backend.reason), "unknown"),
        ("sampling", Some(sampling(p)), ""),
        ("log", Some(log(p)), ""),
        ("started", known(&m.timestamp), "unknown"),
        ("took", Some(format_duration(m.duration_s)), ""),
        ("ended", Some(ended), ""),
    ]
}

fn sampling(p: &Profile) -> String {
    let s = &p.metadata.sampling;
    let ms = |ns: u64| format_figure(ns as f64 / 1e6);
    let mut text = format!(
        "every {} ms, {} ticks, {} missed, longest gap {} ms",
        ms(s.interval_ns),
        grouped_count(s.ticks),
        grouped_count(s.missed_ticks),
        ms(s.longest_gap_ns)
    );
    if let Some(late) = s.jitter_p99_ns {
        text += &format!(", 99 of 100 no more than {} ms late", ms(late));
    }
    if s.failed_readings > 0 {
        text += &format!(", {} readings failed", grouped_count(s.failed_readings));
    }
    text
}

fn log(p: &Profile) -> String {
    let l = &p.metadata.log;
    let mut text = format!("{} lines, {}", grouped_count(l.lines), Bytes(l.bytes));
    if l.dropped_lines > 0 {
        text += &format!(", {} lines dropped", grouped_count(l.dropped_lines));
    }
    if let Some(error) = &l.error {
        text += &format!("; {error}");
    }
    text
}

/// Characters of a log in a report of one run; of several each has its share.
const MOST_OF_LOG: usize = 128 * 1024;

/// The words of the engine and of the bench, folded: what the figures were read from.
pub(super) fn write_logs_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let most = MOST_OF_LOG / material.shown_runs().count().max(1);
    let mut details = Vec::new();
    for at in material.shown_runs() {
        let logs = &at.run.profile.raw_logs;
        for (title, text) in [
            ("The engine's log", &logs.engine),
            ("The bench's output", &logs.bench),
        ] {
            if !text.trim().is_empty() {
                let lines = cut_middle(text, most);
                details.push(listing_block(at.title(title), lines, true));
            }
        }
        let omitted = logs.omitted_bytes;
        if omitted > 0 {
            details.push(format!("{omitted} bytes between beginning and end are left out of the profile; the capture has them in log.txt.").into());
        }
    }
    Chapter::of_parts("logs", "Logs", Vec::new(), details)
}

/// Beginning and end: engines report their memory first, and why they died last.
fn cut_middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let half = most / 2;
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    let head = (0..=half).rfind(is_boundary).unwrap_or(0);
    let tail = (text.len() - half..)
        .find(is_boundary)
        .unwrap_or(text.len());
    let (first, omitted, last) = (&text[..head], tail - head, &text[tail..]);
    format!("{first}\n… {omitted} bytes …\n{last}")
}
