//! What the chapters of a report say of runs: every figure once, each with its source or a reason.

#[path = "common/captures.rs"]
mod captures;

use captures::*;
use plimsoll::breakdown::Component;
use plimsoll::profile::Profile;
use plimsoll::report::chapters::{self, title};
use plimsoll::report::chart::{Chart, Plot, Timeline};
use plimsoll::report::content::{Block, Cell, Chapter, Grid, Report};
use plimsoll::report::lanes::{self, Told};
use plimsoll::report::material::{Material, Run};
use plimsoll::units::GIB;
use std::collections::{BTreeMap, HashSet};

/// The example that ships.
fn example() -> Profile {
    serde_json::from_str(include_str!("../results/example/tiny-profile.json")).unwrap()
}

fn run(name: &str, profile: Profile) -> Run {
    Run {
        name: name.into(),
        timeline: lanes::of_profile(&profile),
        profile: Box::new(profile),
        calculated: None,
        places: BTreeMap::new(),
        in_full: true,
    }
}

fn of(runs: Vec<Run>) -> Report {
    let material = Material {
        runs,
        ..Material::default()
    };
    made(&material)
}

fn made(material: &Material) -> Report {
    chapters::report(title(material), Vec::new(), material)
}

fn two() -> Profile {
    two_gpus().derive()
}

fn chapter<'a>(report: &'a Report, id: &str) -> &'a Chapter {
    let found = report.chapters.iter().find(|c| c.id == id);
    found.unwrap_or_else(|| panic!("no chapter {id}"))
}

fn grids(report: &Report) -> impl Iterator<Item = &Grid> {
    let blocks = report.chapters.iter().flat_map(|c| &c.blocks);
    blocks.filter_map(|b| match b {
        Block::Table(grid) => Some(grid),
        _ => None,
    })
}

fn grid<'a>(report: &'a Report, id: &str) -> &'a Grid {
    let found = grids(report).find(|g| g.id == id);
    found.unwrap_or_else(|| panic!("no table {id}"))
}

fn charts(report: &Report) -> impl Iterator<Item = &Chart> {
    let blocks = report.chapters.iter().flat_map(|c| &c.blocks);
    blocks.filter_map(|b| match b {
        Block::Chart(chart) => Some(chart),
        _ => None,
    })
}

fn timelines(report: &Report) -> Vec<&Timeline> {
    let blocks = report.chapters.iter().flat_map(|c| &c.blocks);
    let found = blocks.filter_map(|b| match b {
        Block::Timeline(timeline) => Some(timeline),
        _ => None,
    });
    found.collect()
}

/// The cell of the row that begins with `row`, in the column `key`.
fn cell<'a>(grid: &'a Grid, row: &str, key: &str) -> &'a Cell {
    let at = grid.columns.iter().position(|c| c.key == key);
    let at = at.unwrap_or_else(|| panic!("no column {key}"));
    let row = grid.rows.iter().find(|r| r[0].text == row);
    &row.unwrap_or_else(|| panic!("{} has no such row", grid.id))[at]
}

/// What holds of every report, whatever was read.
fn is_sound(report: &Report) {
    let mut ids = HashSet::new();
    for chapter in &report.chapters {
        assert!(ids.insert(chapter.id.clone()), "{} twice", chapter.id);
    }
    let mut ids = HashSet::new();
    for grid in grids(report) {
        assert!(ids.insert(grid.id.clone()), "{} twice", grid.id);
        for row in &grid.rows {
            assert_eq!(row.len(), grid.columns.len(), "{}: {row:?}", grid.id);
            for (cell, column) in row.iter().zip(&grid.columns) {
                let shown = format!("{}, {}: {cell:?}", grid.id, column.key);
                if let Some(number) = cell.number {
                    assert!(number.is_finite() && !cell.text.is_empty(), "{shown}");
                    assert!(cell.source.is_some(), "no source: {shown}");
                    assert!(column.numeric, "{shown}");
                }
                if let Some(why) = &cell.missing {
                    assert!(!why.is_empty() && cell.text.is_empty(), "{shown}");
                }
                if let Some(source) = cell.source {
                    let source = report.sources.get(source.0).expect("a source");
                    assert!(!source.witnesses.is_empty(), "{source:?}");
                    assert!(source.witnesses[0].used, "{source:?}");
                }
            }
        }
    }
    for chart in charts(report) {
        assert!(ids.insert(chart.id.clone()), "{} twice", chart.id);
    }
    for timeline in timelines(report) {
        assert!(ids.insert(timeline.id.clone()), "{} twice", timeline.id);
    }
}

#[test]
fn every_part_stands_in_the_table_and_in_the_bars_and_sums_to_the_peak() {
    for profile in [example(), two(), serving_host().derive()] {
        let breakdown = profile.memory_breakdown.clone();
        let peak = breakdown.total_measured_bytes.unwrap() as f64;
        let report = of(vec![run("one", profile)]);
        is_sound(&report);
        let table = grid(&report, "parts");
        let bytes: Vec<f64> = (table.rows.iter())
            .filter_map(|row| row[2].number)
            .collect();
        assert_eq!(bytes[0], peak);
        assert_eq!(bytes[1..].iter().sum::<f64>(), peak);
        for part in &breakdown.components {
            let label = part.component.label();
            assert_eq!(
                cell(table, label, "bytes").number,
                Some(part.bytes as f64),
                "{label}"
            );
        }
        let chart = charts(&report).find(|c| c.id == "breakdown").unwrap();
        let Plot::Bars(bars) = &chart.plot else {
            panic!("{chart:?}")
        };
        assert_eq!(bars.bars.len(), breakdown.per_gpu.len());
        for (bar, device) in bars.bars.iter().zip(&breakdown.per_gpu) {
            let sum: f64 = bar.segments.iter().map(|s| s.value).sum();
            assert!(
                (sum * GIB - device.peak_bytes as f64).abs() < 1.0,
                "{bar:?}"
            );
            for part in &device.parts {
                let label = part.component.label();
                let kind = bars.parts.iter().position(|p| p == label).unwrap();
                let segment = bar.segments.iter().find(|s| s.part == kind).unwrap();
                assert_eq!(segment.value, part.gb);
                assert!(segment.source.is_some() && segment.confidence.is_some());
                assert_eq!(segment.unsure, part.component == Component::Unexplained);
            }
        }
    }
}

#[test]
fn a_figure_leads_to_the_log_line_that_it_rests_on() {
    let mut run = run("one", two());
    let used = |component| {
        let evidence = run.profile.evidence.iter();
        let mut used = evidence.filter(move |e| e.used && e.component == component);
        used.next().unwrap().clone()
    };
    let weights = used(Component::ModelWeights);
    let activations = used(Component::Activations);
    run.places
        .insert(weights.quote.clone(), "log.txt, line 7".into());
    let report = of(vec![run]);
    let source = |label: &str| {
        let id = cell(grid(&report, "parts"), label, "gib").source.unwrap();
        &report.sources[id.0]
    };
    let found = source("Model weights");
    assert_eq!(found.witnesses[0].quote, weights.quote);
    assert_eq!(found.witnesses[0].kind, "the engine's log");
    assert_eq!(found.witnesses[0].place.as_deref(), Some("log.txt, line 7"));
    assert!(found.confidence.as_deref().unwrap().starts_with("high"));
    // Witnesses that are not used stand there, too, behind those that are.
    let used: Vec<bool> = found.witnesses.iter().map(|w| w.used).collect();
    assert!(used.is_sorted_by(|a, b| a >= b), "{used:?}");
    let place = source("Activations").witnesses[0].place.clone();
    assert!(
        activations.quote.is_empty() || place.unwrap().contains("second"),
        "a measured figure says which sample"
    );
}

#[test]
fn what_is_unknown_has_its_reason_and_is_no_figure() {
    let mut profile = example();
    profile.memory_breakdown.total_measured_bytes = None;
    profile.memory_breakdown.total_measured_gb = None;
    profile.memory_breakdown.components.clear();
    profile.memory_breakdown.per_gpu.clear();
    let why = "nothing was sampled";
    profile
        .unknown
        .insert("memory_breakdown.total_measured_gb".into(), why.into());
    let report = of(vec![run("one", profile)]);
    is_sound(&report);
    let figures = grid(&report, "figures");
    assert_eq!(cell(figures, "Peak", "value").missing.as_deref(), Some(why));
    assert!(charts(&report).all(|c| c.id != "breakdown"));
    // A reason covers what lies below its path.
    let throughput = cell(figures, "Throughput", "value");
    assert_eq!(
        throughput.missing.as_deref(),
        Some("a latency bench does not tell it")
    );
}

#[test]
fn what_is_simulated_is_said() {
    let report = of(vec![run("one", example())]);
    assert_eq!(report.simulated.as_deref(), Some("the engine is simulated"));
    assert!(charts(&report).all(|c| c.simulated));
    assert!(timelines(&report).iter().all(|t| t.simulated));
    let mut real = example();
    real.metadata.simulated = false;
    real.engine_metadata.simulated = false;
    let report = of(vec![run("a", example()), run("b", real)]);
    assert_eq!(
        report.simulated.as_deref(),
        Some("1 of 2 runs are simulated")
    );
    let runs = grid(&report, "runs");
    assert_eq!(runs.rows[0][0].text, "a (simulated)");
    assert_eq!(runs.rows[1][0].text, "b");
}

#[test]
fn a_timeline_of_a_capture_has_every_sample_in_its_envelope() {
    let built = two_gpus();
    let profile = built.derive();
    for most in [20, 200, 100_000] {
        let timeline = lanes::of_capture(
            &built.capture,
            built.samples.iter().cloned(),
            &Told::default(),
            &profile,
            most,
        );
        let all: usize = timeline.lanes.iter().map(|l| l.stretches.len()).sum();
        assert!(all <= most.max(2 * timeline.lanes.len()), "{all} of {most}");
        for device in 0..2u32 {
            let lane = &timeline.lanes[device as usize];
            assert_eq!(lane.label, format!("GPU {device} memory"));
            let mine = built.samples.iter().filter(|s| s.device == device);
            assert_eq!(lane.samples, mine.clone().count() as u64);
            let highest = lane.stretches.iter().map(|s| s.high).fold(0.0, f64::max);
            let used = |s: &plimsoll::capture::MemorySample| {
                (s.high_bytes.unwrap_or(0).max(s.used_bytes) + s.reserved_bytes.unwrap_or(0)) as f64
            };
            assert_eq!(highest, mine.map(used).fold(0.0, f64::max) / GIB);
            assert!(lane.stretches.is_sorted_by(|a, b| a.to_s <= b.from_s));
        }
        assert!(timeline.phases.iter().any(|p| p.label == "load"));
        assert!(timeline.phases.is_sorted_by(|a, b| a.to_s <= b.from_s));
        assert!(timeline.events.iter().any(|e| e.label.starts_with("peak")));
    }
}
