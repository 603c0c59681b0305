//! Where it ran and how it was read: host, container, engine, backend, sampling.

use super::Sources;
use super::words;
use crate::profile::Profile;
use crate::report::content::{Chapter, ContentBlock, Grid, TableCell, text_column as column};
use crate::report::layout::{format_duration, format_figure, grouped_count};
use crate::report::material::{Material, ReportRun};
use crate::units::Bytes;

/// A fact of a run, or why it is not known.
type EnvironmentFact = (&'static str, Result<String, &'static str>);

pub(super) fn write_environment_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let shown: Vec<&ReportRun> = material.runs.iter().filter(|r| r.in_full).collect();
    let Some(first) = shown.first() else {
        return Vec::new();
    };
    let all: Vec<Vec<EnvironmentFact>> = shown
        .iter()
        .map(|r| environment_facts(&r.profile))
        .collect();
    let many = shown.len() > 1;
    let mut columns = vec![column("fact", "fact")];
    if many {
        columns.extend(
            shown
                .iter()
                .enumerate()
                .map(|(i, r)| column(&r.name, &format!("run_{}", i + 1))),
        )
    } else {
        columns.push(column("value", "value"))
    }
    let rows = environment_facts(&first.profile)
        .into_iter()
        .enumerate()
        .map(|(i, (label, _))| {
            let mut row = vec![TableCell::text_cell(label)];
            row.extend(all.iter().map(|facts| match facts.get(i) {
                Some((_, Ok(text))) => TableCell::text_cell(text),
                Some((_, Err(why))) => TableCell::missing_cell(*why),
                None => TableCell::missing_cell("not known"),
            }));
            row
        });
    vec![Chapter {
        id: "environment".into(),
        title: "Environment".into(),
        details: vec![ContentBlock::Table(Grid {
            id: "environment".into(),
            caption: "Where it ran and how it was read".into(),
            columns,
            rows: rows.collect(),
        })],
        ..Chapter::default()
    }]
}

/// Every fact in the same order for every run.
fn environment_facts(p: &Profile) -> Vec<EnvironmentFact> {
    let m = &p.metadata;
    let (host, container, backend) = (&m.host, &m.container, &m.memory_backend);
    let known = |text: &str, why: &'static str| match text {
        "" => Err(why),
        text => Ok(text.to_owned()),
    };
    let or = |text: Option<String>, why: &'static str| text.ok_or(why);
    let devices = p
        .gpu_info
        .devices
        .iter()
        .map(|d| format!("{} ({})", d.name, d.id));
    vec![
        ("run", known(&m.run_id, "not in the profile")),
        (
            "plimsoll",
            Ok(format!(
                "{}, schema {}",
                p.profiler_version, p.schema_version
            )),
        ),
        ("host", known(&host.hostname, "unknown")),
        (
            "kernel",
            known(&format!("{} {}", host.kernel, host.arch), "unknown"),
        ),
        ("processors", Ok(host.cpus.to_string())),
        (
            "host memory",
            or(
                host.memory_bytes.map(|b| Bytes(b).to_string()),
                "not reported by the kernel",
            ),
        ),
        (
            "Docker",
            or(host.docker_version.clone(), "not reported by the daemon"),
        ),
        ("container", known(&container.name, "it has no name")),
        (
            "image",
            known(&container.image, "not reported by the daemon"),
        ),
        (
            "image id",
            known(&container.image_id, "not reported by the daemon"),
        ),
        (
            "memory limit",
            or(
                container.memory_limit_bytes.map(|b| Bytes(b).to_string()),
                "the container has no limit of its own",
            ),
        ),
        (
            "/dev/shm",
            or(
                container.shm_size_bytes.map(|b| Bytes(b).to_string()),
                "not reported by the daemon",
            ),
        ),
        ("engine", Ok(words::engine_label(p))),
        (
            "recognised by",
            known(&p.engine_metadata.evidence, "unknown"),
        ),
        ("mode", Ok(words::mode_label(p).to_owned())),
        (
            "devices",
            known(
                &devices.collect::<Vec<_>>().join(", "),
                "no device was measured",
            ),
        ),
        (
            "memory backend",
            Ok(match &backend.version {
                Some(version) => format!("{}, {version}", backend.name),
                None => backend.name.clone(),
            }),
        ),
        ("chosen because", known(&backend.reason, "unknown")),
        ("sampling", Ok(sampling(p))),
        ("log", Ok(log(p))),
        ("started", known(&m.timestamp, "unknown")),
        ("took", Ok(format_duration(m.duration_s))),
        (
            "ended",
            Ok(match m.outcome.failure() {
                Some(why) => format!("{}: {why}", words::outcome_label(&m.outcome)),
                None => words::outcome_label(&m.outcome).to_owned(),
            }),
        ),
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
        text.push_str(&format!(", 99 of 100 no more than {} ms late", ms(late)));
    }
    if s.failed_readings > 0 {
        text.push_str(&format!(
            ", {} readings failed",
            grouped_count(s.failed_readings)
        ));
    }
    text
}

fn log(p: &Profile) -> String {
    let l = &p.metadata.log;
    let mut text = format!("{} lines, {}", grouped_count(l.lines), Bytes(l.bytes));
    if l.dropped_lines > 0 {
        text.push_str(&format!(
            ", {} lines dropped",
            grouped_count(l.dropped_lines)
        ));
    }
    if let Some(error) = &l.error {
        text.push_str(&format!("; {error}"));
    }
    text
}
