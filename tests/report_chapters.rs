//! What the chapters of a report say of runs: every figure once, each with its source or a reason.

use crate::common::captures;
use captures::*;
use plimsoll::breakdown::Component;
use plimsoll::capture::{HostSplit, LimitLevel, RunEnd};
use plimsoll::compare::calculated::Calculated;
use plimsoll::compare::validate::RunValidation;
use plimsoll::engine::facts::{Finding, Severity};
use plimsoll::profile::{HostMemoryUse, HostPoint, Profile};
use plimsoll::report::chapters;
use plimsoll::report::chart::{Chart, Plot};
use plimsoll::report::content::{AnswerState, Chapter, ContentBlock, Grid, Report, TableCell};
use plimsoll::report::lanes::{self, CaptureLog};
use plimsoll::report::material::{Material, ReportRun, StoredDocument};
use plimsoll::units::GIB;
use std::collections::{BTreeMap, HashSet};

/// The example that ships.
fn example() -> Profile {
    serde_json::from_str(include_str!("../results/example/tiny-profile.json")).unwrap()
}

fn run(name: &str, profile: Profile) -> ReportRun {
    ReportRun {
        name: name.into(),
        timeline: lanes::of_profile(&profile),
        profile: Box::new(profile),
        plan: None,
        calculated: None,
        places: BTreeMap::new(),
        in_full: true,
    }
}

fn of(runs: Vec<ReportRun>) -> Report {
    let material = Material {
        runs,
        ..Material::default()
    };
    made(&material)
}

fn made(material: &Material) -> Report {
    chapters::build_report(Vec::new(), material)
}

fn two() -> Profile {
    two_gpus().derive()
}

/// The profile of a stored capture.
fn captured(name: &str) -> Profile {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = folder.join(format!("tests/differential/captures/{name}.capture"));
    let stored = plimsoll::store::StoredCapture::open(&folder).unwrap();
    let lines = stored.read_lines().unwrap();
    plimsoll::profile::derive_profile(&stored.capture, stored.read_samples().unwrap(), lines)
}

fn chapter<'a>(report: &'a Report, id: &str) -> &'a Chapter {
    let found = report.chapters.iter().find(|c| c.id == id);
    found.unwrap_or_else(|| panic!("no chapter {id}"))
}

fn grids(report: &Report) -> impl Iterator<Item = &Grid> {
    let blocks = report.chapters.iter().flat_map(Chapter::all_blocks);
    blocks.filter_map(|b| match b {
        ContentBlock::Table(grid) => Some(grid),
        _ => None,
    })
}

fn grid<'a>(report: &'a Report, id: &str) -> &'a Grid {
    let found = grids(report).find(|g| g.id == id);
    found.unwrap_or_else(|| panic!("no table {id}"))
}

fn charts(report: &Report) -> impl Iterator<Item = &Chart> {
    let blocks = report.chapters.iter().flat_map(Chapter::all_blocks);
    blocks.filter_map(|b| match b {
        ContentBlock::Chart(chart) if !matches!(chart.plot, Plot::Timeline(_)) => Some(chart),
        _ => None,
    })
}

fn timelines(report: &Report) -> Vec<&Chart> {
    let blocks = report.chapters.iter().flat_map(Chapter::all_blocks);
    let found = blocks.filter_map(|b| match b {
        ContentBlock::Chart(chart) if matches!(chart.plot, Plot::Timeline(_)) => Some(chart),
        _ => None,
    });
    found.collect()
}

/// The cell of the row that begins with `row`, in the column `key`.
fn cell<'a>(grid: &'a Grid, row: &str, key: &str) -> &'a TableCell {
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
            .filter_map(|row| row.last()?.number)
            .collect();
        assert_eq!(bytes[0], peak);
        assert_eq!(bytes[1..].iter().sum::<f64>(), peak);
        for part in &breakdown.components {
            let label = part.component.display_label();
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
                let label = part.component.display_label();
                let kind = bars.parts.iter().position(|p| p.label == *label).unwrap();
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
    let peak = cell(grid(&report, "parts"), "Total at the peak", "gib");
    assert_eq!(peak.missing.as_deref(), Some(why));
    assert!(charts(&report).all(|c| c.id != "breakdown"));
    // A reason covers what lies below its path.
    let performance = report.chapters.iter().find(|c| c.id == "performance");
    let sentence = "throughput unknown: it is only known with --batch-size";
    assert!(
        matches!(&performance.unwrap().blocks[0], ContentBlock::Text(text) if text.contains(sentence)),
        "{performance:?}"
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
            &CaptureLog::default(),
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

#[test]
fn every_chapter_of_runs_is_sound() {
    let mut material = Material {
        runs: vec![run("x/a", example())],
        gpu_hour_price: Some(2.5),
        currency: "USD".into(),
        ..Material::default()
    };
    is_sound(&made(&material));
    material.runs.push(run("y/a", two()));
    material.runs.push(run("b", serving_host().derive()));
    for run in &mut material.runs {
        let nothing = Calculated::nothing_calculated("the model is not known");
        run.calculated = Some(RunValidation::validate_run(
            &run.profile,
            &run.name,
            &nothing,
        ));
    }
    let report = made(&material);
    is_sound(&report);
    let ids: Vec<&str> = report.chapters.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "summary",
            "breakdown",
            "timeline",
            "performance",
            "calculated",
            "cost",
            "findings",
            "correlations",
            "configuration",
            "environment",
            "logs"
        ]
    );
    assert_eq!(
        made(&material),
        report,
        "the same material, the same report"
    );
}

#[test]
fn a_cost_shows_its_factors_and_needs_each_of_them() {
    let mut profile = two();
    let stats = profile.latency_stats.as_mut().unwrap();
    stats.tokens_per_second = Some(1000.0);
    stats.requests_per_second = Some(4.0);
    let mut material = Material {
        runs: vec![run("gpu", profile), run("host", example())],
        gpu_hour_price: Some(3.6),
        currency: "EUR".into(),
        ..Material::default()
    };
    let report = made(&material);
    let cost = grid(&report, "cost");
    // 2 × 3.60 an hour, 3.6 million tokens an hour.
    let million = cell(cost, "gpu", "cost_per_million_tokens");
    assert_eq!((million.number, million.text.as_str()), (Some(2.0), "2.00"));
    assert_eq!(
        cell(cost, "gpu", "cost_per_1000_requests").number,
        Some(0.5)
    );
    assert_eq!(cell(cost, "gpu", "gpus").number, Some(2.0));
    let source = &report.sources[million.source.unwrap().0];
    assert!(
        source.witnesses[0].quote.starts_with("3.6 × 2 ÷"),
        "{source:?}"
    );
    let missing = cell(cost, "host", "cost_per_million_tokens")
        .missing
        .clone();
    assert!(missing.unwrap().contains("no GPU was measured"));
    assert!(
        cost.columns
            .iter()
            .any(|c| c.title == "per million tokens, EUR")
    );
    material.gpu_hour_price = None;
    assert!(made(&material).chapters.iter().all(|c| c.id != "cost"));
}

#[test]
fn findings_stand_worst_first_and_each_once() {
    let finding = |code: &str, severity| Finding {
        code: code.into(),
        severity,
        message: format!("about {code}"),
        quote: None,
    };
    let with = |name: &str, findings: Vec<Finding>| {
        let mut profile = example();
        profile.findings = findings;
        run(name, profile)
    };
    let report = of(vec![
        with(
            "a",
            vec![
                finding("small", Severity::Info),
                finding("both", Severity::Warning),
            ],
        ),
        with(
            "b",
            vec![
                finding("both", Severity::Warning),
                finding("bad", Severity::Error),
            ],
        ),
    ]);
    let notes: Vec<String> = (chapter(&report, "findings").blocks.iter())
        .map(|b| match b {
            ContentBlock::Note(note) => note.message.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        notes,
        ["b: about bad", "all 2 runs: about both", "a: about small"]
    );
    let none = of(vec![with("a", Vec::new())]);
    assert_eq!(
        chapter(&none, "findings").blocks.len(),
        1,
        "silence is said"
    );
}

#[test]
fn correlations_need_runs_enough() {
    let report = of(vec![run("a", two()), run("b", two())]);
    // Two runs without samples have nothing to correlate: no chapter that only says so.
    assert!(report.chapters.iter().all(|c| c.id != "correlations"));
    let mut runs = Vec::new();
    for batch in 1..=4u32 {
        let mut profile = two();
        profile.memory_breakdown.total_measured_gb = Some(f64::from(batch) * 2.0);
        profile.parameters.bench = "latency".into();
        profile.parameters.workload.batch_size = Some(batch);
        runs.push(run(&format!("r{batch}"), profile));
    }
    let report = of(runs);
    let table = grid(&report, "correlations");
    let row = table
        .rows
        .iter()
        .find(|r| r[1].text.starts_with("peak") && r[2].text == "batch");
    assert_eq!(row.unwrap()[4].text, "1.00");
}

#[test]
fn settings_say_what_was_asked_for_and_what_is_in_force() {
    let mut profile = two();
    profile.configuration.requested = [("a".to_owned(), "1".to_owned())].into();
    profile.configuration.effective = [
        ("a".to_owned(), "2".to_owned()),
        ("b".to_owned(), "3".to_owned()),
    ]
    .into();
    profile.configuration.differences = vec![plimsoll::profile::Difference {
        setting: "a".into(),
        requested: "1".into(),
        effective: "2".into(),
    }];
    let report = of(vec![run("one", profile.clone())]);
    let settings = grid(&report, "settings");
    assert_eq!(cell(settings, "a", "requested").text, "1");
    assert_eq!(cell(settings, "a", "effective").text, "2");
    assert_eq!(cell(settings, "a", "differs").text, "differs");
    assert!(cell(settings, "b", "requested").missing.is_some());
    // Of many runs what differs stands first, with how many have it.
    let runs = (0..9).map(|i| {
        let mut profile = profile.clone();
        profile.parameters.workload.max_concurrency = Some(if i < 6 { 8 } else { 16 });
        run(&format!("r{i}"), profile)
    });
    let report = of(runs.collect());
    let settings = grid(&report, "settings");
    assert_eq!(settings.rows[0][0].text, "max_concurrency");
    assert_eq!(settings.rows[0][2].text, "8 (6), 16 (3)");
}

#[test]
fn a_run_that_failed_says_so_before_any_figure() {
    let mut profile = example();
    profile.metadata.outcome = RunEnd::BenchFailed("out of memory".into());
    let report = of(vec![run("one", profile)]);
    let ContentBlock::Note(note) = &chapter(&report, "summary").blocks[0] else {
        panic!("no note")
    };
    assert_eq!(note.severity, Severity::Error);
    assert!(
        note.message.ends_with(": out of memory"),
        "{}",
        note.message
    );
}

#[test]
fn the_word_of_the_verdict_is_that_of_its_state() {
    // Preempted with most of its memory free.
    let answer = of(vec![run("one", captured("llama-cpp"))]).answer.unwrap();
    assert_eq!(answer.state, AnswerState::Tight);
    assert!(
        answer
            .verdict
            .starts_with("Tight: peak 1.72 GiB of 8.00 GiB")
    );
    assert!(answer.verdict.contains("ran full: 2 preemptions"));
    // The host's memory is the nearer limit.
    let mut profile = two();
    profile.host_memory = Some(HostMemoryUse {
        limit_bytes: Some(1000),
        limit_level: Some(LimitLevel::Container),
        baseline: None,
        peak: Some(HostPoint {
            at_ns: 0,
            used_bytes: 990,
            held_bytes: 990,
            kinds: HostSplit::default(),
        }),
        kernel_peak_bytes: None,
        tightest_host: None,
    });
    let answer = of(vec![run("one", profile)]).answer.unwrap();
    assert_eq!(answer.state, AnswerState::Critical);
    assert!(
        answer.verdict.starts_with("Critical: peak 59."),
        "{answer:?}"
    );
}

#[test]
fn of_a_pair_the_fullest_gpu_counts_and_what_is_not_comparable_comes_first() {
    let pair = |change: fn(&mut Profile)| {
        let mut other = two();
        change(&mut other);
        let material = Material {
            runs: vec![run("a", two()), run("b", other)],
            compare: true,
            ..Material::default()
        };
        made(&material).answer.unwrap()
    };
    let grown = pair(|p| {
        p.memory_breakdown.per_gpu[0].peak_bytes += GIB as u64;
        *p.memory_breakdown.total_measured_bytes.as_mut().unwrap() += 2 * GIB as u64;
    });
    assert!(
        grown.verdict.starts_with("The peak rose by 1.00 GiB"),
        "{grown:?}"
    );
    assert_eq!(grown.state, AnswerState::Safe);
    let other = pair(|p| p.parameters.workload.output_len = 7);
    assert!(
        (other.verdict).starts_with("Not comparable: output_len differs: 128 and 7. The peak"),
        "{other:?}"
    );
    assert_eq!(other.state, AnswerState::Unknown);
}

#[test]
fn latency_stands_in_the_columns_that_the_bench_gives() {
    let report = of(vec![run("one", example())]);
    let table = grid(&report, "latency");
    let keys: Vec<&str> = table.columns.iter().map(|c| c.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "kind",
            "mean_ms",
            "median_ms",
            "p10_ms",
            "p25_ms",
            "p75_ms",
            "p90_ms",
            "p99_ms"
        ]
    );
    assert_eq!(cell(table, "Latency", "mean_ms").number, Some(180.403942));
    // Columns that no repeat fills are left out.
    let repeats = grid(&report, "repeats");
    assert!(repeats.columns.iter().all(|c| c.key != "failed"));
    assert_eq!(cell(repeats, "1", "peak_gib").text, "0.878");
}

#[test]
fn older_documents_have_their_line() {
    let material = Material {
        older: vec![StoredDocument {
            name: "old.json".into(),
            document: serde_json::json!({"memory_breakdown": {"total_gb": 15.5}}),
        }],
        ..Material::default()
    };
    let report = made(&material);
    let older = grid(&report, "older");
    assert_eq!(cell(older, "old.json", "total_gib").text, "15.500");
    assert!(cell(older, "old.json", "kv_cache_gib").missing.is_some());
}

/// The figures of the blocks that answer first questions: their texts.
fn main_figures(report: &Report) -> Vec<String> {
    let blocks = report.chapters.iter().flat_map(|c| &c.blocks);
    let cells = blocks.flat_map(|block| match block {
        ContentBlock::Table(grid) => grid.rows.concat(),
        _ => Vec::new(),
    });
    let figures = cells.filter(|cell| cell.number.is_some());
    figures.map(|cell| cell.text).collect()
}

#[test]
fn a_terminal_a_page_and_a_pull_request_show_the_same_figures() {
    use crate::common::pages;
    use plimsoll::report::format::by_name;
    for profile in [example(), two(), serving_host().derive()] {
        let report = of(vec![run("one", profile)]);
        let file = |name: &str, report: &Report| {
            let mut files = by_name(name).unwrap().render_files(report).unwrap();
            String::from_utf8(files.remove(0).bytes).unwrap()
        };
        let html = file("html", &report);
        let markdown = file("md", &report.brief_report());
        let terminal = pages::terminal_page(&report, pages::plain(true, 400));
        let figures = main_figures(&report);
        assert!(figures.len() > 10, "{figures:?}");
        for figure in figures {
            let escaped = figure.replace('<', "&lt;").replace('>', "&gt;");
            assert!(terminal.contains(&figure), "{figure}: {terminal}");
            assert!(html.contains(&escaped), "{figure}");
            assert!(markdown.contains(&escaped), "{figure}: {markdown}");
        }
        let answer = report.answer.as_ref().unwrap();
        let last: Vec<&str> = terminal.lines().rev().take(24).collect();
        assert!(
            last.iter().any(|l| l.contains(&answer.verdict)),
            "{terminal}"
        );
    }
}

#[test]
fn a_pull_request_gets_a_short_report_and_no_more_than_fits() {
    use plimsoll::report::format::by_name;
    let lengths = |report: &Report| {
        let files = by_name("md").unwrap().render_files(report).unwrap();
        let text = String::from_utf8(files[0].bytes.clone()).unwrap();
        (text.lines().count(), text.len())
    };
    for profile in [example(), two(), serving_host().derive()] {
        let (lines, _) = lengths(&of(vec![run("one", profile)]).brief_report());
        assert!(lines <= 60, "{lines}");
    }
    // A probe in the process has operators and layers: 100 lines with all of their tables.
    let transformers = captured("transformers");
    let report = of(vec![run("one", transformers)]).brief_report();
    let (lines, _) = lengths(&report);
    assert!(lines <= 60, "{lines}");
    let files = by_name("md").unwrap().render_files(&report).unwrap();
    let text = String::from_utf8(files[0].bytes.clone()).unwrap();
    assert!(text.contains("3 tables more with --full."), "{text}");
    let pair = Material {
        runs: vec![run("a", two()), run("b", serving_host().derive())],
        compare: true,
        ..Material::default()
    };
    let (lines, _) = lengths(&made(&pair).brief_report());
    assert!(lines <= 60, "{lines}");
    let many = (0..300).map(|n| run(&format!("run {n}"), two()));
    let (_, bytes) = lengths(&of(many.collect()).brief_report());
    assert!(bytes < 60_000, "{bytes}");
}

#[test]
fn engines_under_one_load_stand_side_by_side() {
    let mut other = two();
    other.engine_metadata.engine_type = "sglang".into();
    other.metadata.run_id = "other".into();
    let report = of(vec![run("a", two()), run("b", other)]);
    let table = grid(&report, "engines_1");
    let heads: Vec<&str> = table.columns.iter().map(|c| c.title.as_str()).collect();
    assert_eq!(heads.len(), 3, "{heads:?}");
    assert!(
        heads[1].starts_with("vllm") && heads[2].starts_with("sglang"),
        "{heads:?}"
    );
    let peak = table
        .rows
        .iter()
        .find(|row| row[0].text == "peak, GiB")
        .unwrap();
    assert!(
        peak[1].number.is_some() && peak[1].number == peak[2].number,
        "{peak:?}"
    );
    assert!(peak[1].source.is_some());
    // Two runs of one engine are no comparison of engines.
    let alike = of(vec![run("a", two()), run("b", two())]);
    assert!(grids(&alike).all(|g| !g.id.starts_with("engines")));
}
