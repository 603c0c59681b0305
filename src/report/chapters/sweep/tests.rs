//! Tests of the chapters of sweeps.

use super::super::samples_tests::render_plain;
use super::*;
use crate::matrix::samples as matrix;
use crate::matrix::{CellRow, RowCause, RowStatus};
use crate::report::chapters::answer::answer_of_material;
use crate::report::chart::{Chart, Plot};
use crate::report::content::{Answer, AnswerState};
use crate::report::material::StoredDocument;
use crate::report::sweep::{CellOutcome, Results, json};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Cells of these models, lengths and batches; `fate` is the outcome of each.
fn swept(
    models: &[&str],
    inputs: &[u32],
    batches: &[u32],
    fate: impl Fn(&crate::matrix::Cell) -> Option<CellRow>,
) -> Value {
    let mut cells = Vec::new();
    for model in models {
        for input in inputs {
            for batch in batches {
                let cell = matrix::cell(model, *input, 128, *batch);
                cells.push(CellOutcome {
                    row: fate(&cell),
                    cell,
                });
            }
        }
    }
    let results = Results {
        name: "small".into(),
        started: Some("2026-11-20T10:00:00Z".into()),
        took_s: Some(720.0),
        notes: Vec::new(),
        cells,
    };
    serde_json::to_value(json::results_document(&results)).unwrap()
}

/// What a machine would do on which long prompts in large batches run out of memory.
fn plausible(cell: &crate::matrix::Cell) -> Option<CellRow> {
    let load = &cell.load;
    let (tokens, batch) = (
        f64::from(load.input_len + load.output_len),
        f64::from(load.batch_size?),
    );
    match tokens * batch {
        t if t > 300_000.0 => {
            let mut row = matrix::row(cell, RowStatus::Skipped);
            row.cause = Some(RowCause::ImpliedOom);
            Some(row)
        }
        t if t > 60_000.0 => Some(matrix::row(cell, RowStatus::Failed)),
        t => {
            let mut row = matrix::row(cell, RowStatus::Done);
            row.figures.peak_bytes = Some((8 << 30) + (t as u64) * 100_000);
            row.figures.kv_used_bytes = Some(t as u64 * 90_000);
            row.figures.tokens_per_second = Some(80.0 * batch.powf(0.8));
            row.figures.mean_latency_ms = Some(1600.0 * batch.powf(0.2));
            row.figures.ttft_mean_ms = Some(tokens * batch / 20.0);
            Some(row)
        }
    }
}

fn chapters(documents: Vec<Value>) -> Vec<Chapter> {
    let material = Material {
        sweeps: documents
            .into_iter()
            .enumerate()
            .map(|(i, document)| StoredDocument {
                name: format!("results/{i}"),
                document,
            })
            .collect(),
        ..Material::default()
    };
    write_sweep_chapter(&material, &mut Sources::default())
}

fn tables(chapters: &[Chapter]) -> impl Iterator<Item = &crate::report::content::Grid> {
    let blocks = chapters.iter().flat_map(|c| &c.blocks);
    blocks.filter_map(|b| match b {
        ContentBlock::Table(grid) => Some(grid),
        _ => None,
    })
}

fn charts(chapters: &[Chapter]) -> Vec<&Chart> {
    let blocks = chapters.iter().flat_map(|c| &c.blocks);
    blocks
        .filter_map(|b| match b {
            ContentBlock::Chart(chart) => Some(chart),
            _ => None,
        })
        .collect()
}

#[test]
fn a_sweep_is_shown_as_maps_curves_and_tables() {
    let document = swept(&["org/Tiny-1B"], &[256, 4096], &[1, 8, 64], plausible);
    insta::assert_snapshot!(render_plain(&chapters(vec![document])));
}

/// Configurations beyond those that can be distinguished are left out, never one on the front.
#[test]
fn of_many_configurations_those_on_the_pareto_front_are_drawn() {
    let cell = |utilization: usize, batch: f64| {
        let figures = json!({"tokens_per_second": 100.0 * batch.sqrt() + utilization as f64,
            "mean_latency_ms": 900.0 + batch - utilization as f64});
        json!({"cell": format!("{utilization}-{batch}"), "group": "g", "model": "m", "status": "done",
            "settings": {"gpu_memory_utilization": utilization}, "row": {"figures": figures},
            "load": {"input_len": 128, "output_len": 64, "batch_size": batch as u32}})
    };
    let cells = (0..11).flat_map(|u| [1.0, 4.0].map(|b| cell(u, b)));
    let document = json!({"name": "wide", "cells": cells.collect::<Vec<Value>>()});
    let chapters = chapters(vec![document]);
    let pareto: Vec<&Chart> = charts(&chapters)
        .into_iter()
        .filter(|c| c.id.contains("pareto"))
        .collect();
    let [chart] = pareto.as_slice() else {
        panic!("one latency is known: {pareto:?}");
    };
    let Plot::Curves(plot) = &chart.plot else {
        panic!("{chart:?}");
    };
    assert_eq!(plot.curves.len(), 8);
    assert_eq!(plot.front, [(110.0, 891.0), (210.0, 894.0)]);
    assert_eq!(plot.curves[0].label, "gpu memory utilization 10");
    let note = chart.note.as_deref().unwrap_or_default();
    assert!(
        note.contains("gpu memory utilization 10: batch 1, batch 4."),
        "{note}"
    );
    assert!(
        note.contains("3 more configurations are not drawn"),
        "{note}"
    );
}

#[test]
fn several_engines_are_compared_side_by_side() {
    let cell = |engine: Option<&str>, group: &str, batch: u32| {
        let figures = json!({"engine": engine, "tokens_per_second": 100.0 * f64::from(batch), "mean_latency_ms": 900.0,
            "peak_bytes": 1u64 << 30});
        json!({"cell": format!("{group}-{batch}"), "group": group, "model": "m",
            "status": if engine.is_some() { "done" } else { "failed" },
            "row": {"figures": figures}, "load": {"input_len": 128, "output_len": 64, "batch_size": batch}})
    };
    let cells = [
        cell(Some("vllm"), "a", 1),
        cell(Some("vllm"), "a", 8),
        cell(Some("sglang"), "b", 1),
        cell(None, "b", 8),
    ];
    let chapters = chapters(vec![json!({"name": "both", "cells": cells})]);
    let labels = |chart: &Chart| match &chart.plot {
        Plot::Curves(curves) => curves.curves.iter().map(|c| c.label.clone()).collect(),
        _ => Vec::new(),
    };
    let all = charts(&chapters);
    let pareto = all.iter().find(|c| c.id.contains("pareto"));
    assert_eq!(
        pareto.map(|c| labels(c)),
        Some(vec!["engine sglang".into(), "engine vllm".into()])
    );
    assert!(render_plain(&chapters).contains("Swept: batch size: 1, 8; engine: sglang, vllm."));
}

/// A cell that failed early names its engine without a version: that is no second engine.
#[test]
fn a_lacking_version_makes_no_axis() {
    let cell = |id: u32, version: Option<&str>| {
        json!({"cell": id.to_string(), "group": format!("g{id}"), "model": "m", "engine": "vllm",
            "status": if version.is_some() { "done" } else { "failed" },
            "row": {"figures": {"engine_version": version, "tokens_per_second": 100.0}},
            "load": {"batch_size": id}})
    };
    let swept = |third| {
        let cells = [cell(1, Some("0.1.0")), cell(2, None), cell(3, Some(third))];
        render_plain(&chapters(vec![json!({"name": "one", "cells": cells})]))
    };
    let one = swept("0.1.0");
    assert!(one.contains("Swept: batch size: 1, 2, 3."), "{one}");
    let two = swept("0.2.0");
    assert!(two.contains("batch size / engine: 1 / vllm 0.1.0"), "{two}");
}

/// The answer to a sweep of these cells.
fn answer_of(cells: &[Value]) -> Answer {
    let material = Material {
        sweeps: vec![StoredDocument {
            name: "s".into(),
            document: json!({"name": "s", "cells": cells}),
        }],
        ..Material::default()
    };
    answer_of_material(&material, &mut Sources::default()).unwrap()
}

#[test]
fn what_failed_comes_first_and_promises_nothing() {
    let cell = |batch: u32, status: &str, cause: Option<&str>, limit: Option<u64>| {
        let device =
            json!({"label": "Container", "used_bytes": 1u64 << 29, "total_bytes": 1u64 << 31});
        let figures = json!({"tokens_per_second": 100 * batch, "fullest_device": device,
            "limit_reached_bytes": limit});
        json!({"cell": batch.to_string(), "group": "g", "model": "m", "status": status,
            "row": {"cause": cause, "figures": figures}, "load": {"batch_size": batch}})
    };
    let timeout = |batch| cell(batch, "failed", Some("timeout"), None);
    let all = answer_of(&[timeout(1), timeout(2)]);
    assert_eq!(
        all.verdict,
        "2 of 2 cells failed: 2 timeout; none measured."
    );
    assert_eq!((all.state, all.gauge), (AnswerState::Failed, None));

    let oom = |batch| cell(batch, "failed", Some("oom"), Some(1 << 28));
    let done = |batch| cell(batch, "done", None, None);
    let some = answer_of(&[timeout(1), oom(2), oom(3), done(4), done(5)]).verdict;
    let words =
        "3 of 5 cells failed: 2 oom, 1 timeout; 2 measured; best throughput: 500.0 tokens/s";
    assert!(
        some.starts_with(words) && some.contains("The others are safe: "),
        "{some}"
    );

    let skipped = |batch| cell(batch, "skipped", Some("implied_oom"), None);
    let limited = answer_of(&[oom(1), skipped(2)]).verdict;
    assert!(
        limited.ends_with("1 skipped for needing more memory than their limit."),
        "{limited}"
    );
    let unlimited = answer_of(&[done(1), skipped(2)]).verdict;
    let words = "1 of 2 cells measured, 1 skipped for needing more memory than there is;";
    assert!(unlimited.starts_with(words), "{unlimited}");
}

#[test]
fn the_best_of_a_sweep_is_beyond_the_noise() {
    let cell = |seqs: u32, tokens: f64, stddev: Option<f64>| {
        let figures = json!({"tokens_per_second": tokens, "tokens_per_second_stddev": stddev});
        json!({"cell": seqs.to_string(), "group": seqs.to_string(), "model": "m", "status": "done",
            "engine_args": ["--max-num-seqs", seqs.to_string()],
            "row": {"figures": figures}, "load": {"batch_size": 1}})
    };
    for (stddev, best) in [
        (
            None,
            "best throughput, equal within noise: 225.2 tokens/s with max num seqs 8 at batch 1; 225.1 tokens/s with max num seqs 2 at batch 1.",
        ),
        (
            Some(0.01),
            "best throughput: 225.2 tokens/s with max num seqs 8 at batch 1.",
        ),
        (Some(70.0), "with max num seqs 2 at batch 1; 1 more."),
    ] {
        let cells =
            [(1, 100.0), (2, 225.1), (8, 225.2)].map(|(seqs, tokens)| cell(seqs, tokens, stddev));
        let verdict = answer_of(&cells).verdict;
        assert!(verdict.ends_with(best), "{verdict}");
    }
}

#[test]
fn ids_of_chapters_tables_and_charts_are_unique_over_several_sweeps() {
    let document = || swept(&["a", "b"], &[256, 4096], &[1, 8, 64], plausible);
    let chapters = chapters(vec![document(), document()]);
    let mut ids: Vec<&str> = chapters.iter().map(|c| c.id.as_str()).collect();
    ids.extend(tables(&chapters).map(|t| t.id.as_str()));
    ids.extend(charts(&chapters).iter().map(|c| c.id.as_str()));
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    assert!(all > 20, "{all}");
}

#[test]
fn lengths_that_change_together_are_one_axis() {
    let document = json!({"name": "zipped", "cells": ([(1, 512, 64), (1, 4096, 256), (8, 512, 64), (8, 4096, 256)])
    .map(|(batch, input, output)| json!({
        "cell": format!("{batch}-{input}"), "model": "m", "status": "done",
        "load": {"batch_size": batch, "input_len": input, "output_len": output},
        "row": {"status": "done", "figures": {"peak_bytes": 1u64 << 33}},
    }))});
    let chapters = chapters(vec![document]);
    let charts = charts(&chapters);
    let heat = charts.iter().find_map(|c| match &c.plot {
        Plot::Heat(heat) => Some(heat),
        _ => None,
    });
    let heat = heat.unwrap();
    assert_eq!(heat.y.0, "prompt tokens / generated tokens");
    assert_eq!(heat.y.1, ["4096 / 256", "512 / 64"]);
    assert_eq!(heat.x.1, ["1", "8"]);
}

#[test]
fn a_square_over_several_cells_names_them_and_what_failed_among_them() {
    let cell = |batch: u32, input: u32, rate: u32, done: bool| {
        json!({
            "cell": format!("{batch}-{input}-{rate}"), "model": "m",
            "status": if done { "done" } else { "failed" },
            "load": {"batch_size": batch, "input_len": input, "request_rate": rate},
            "row": {"cause": "oom", "figures": {"peak_bytes": (u64::from(rate)) << 30}},
        })
    };
    let mut cells = Vec::new();
    for batch in [1, 2] {
        for input in [10, 20] {
            for rate in 1..=5 {
                cells.push(cell(batch, input, rate, rate < 4 && input == 10));
            }
        }
    }
    let chapters = chapters(vec![json!({"cells": cells})]);
    let charts = charts(&chapters);
    let over = charts
        .iter()
        .find(|c| {
            c.note
                .as_deref()
                .is_some_and(|n| n.contains("requests/s sent"))
        })
        .unwrap();
    let Plot::Heat(heat) = &over.plot else {
        panic!("{over:?}")
    };
    let texts: Vec<&str> = heat
        .squares
        .iter()
        .flatten()
        .map(|s| s.text.as_str())
        .collect();
    assert_eq!(texts, ["oom", "oom", "3.00*", "3.00*"]);
    assert!(
        over.note
            .as_deref()
            .is_some_and(|n| n.contains("highest") && n.contains('*'))
    );
}

#[test]
fn documents_that_are_broken_give_what_they_have() {
    for document in [
        json!(null),
        json!([1, 2]),
        json!({"cells": 7}),
        json!({"cells": [null, 3, {}, {"row": []}, {"settings": "x", "load": [1]}]}),
        json!({"cells": [{"status": "done", "row": {"figures": {"peak_bytes": "much", "tokens_per_second": -1}}}]}),
        json!({"name": 5, "notes": {"a": 1}, "took_s": "long", "cells": [{"model": "\u{1b}[2J\u{202e}", "load": {"batch_size": {"a": []}}}]}),
    ] {
        let chapters = chapters(vec![document]);
        let all = tables(&chapters).last().unwrap();
        assert!(all.id == "sweep_cells");
    }
    // Only `done` has figures, whatever else stands there.
    let document = json!({"cells": [{"status": "failed", "row": {"figures": {"peak_bytes": 5}}}]});
    let chapters = chapters(vec![document]);
    assert!(
        tables(&chapters)
            .flat_map(|t| &t.columns)
            .all(|c| c.key != "peak_gib")
    );
}

#[test]
fn five_hundred_cells_stay_few_pictures() {
    let inputs: Vec<u32> = (1..=10).map(|n| n * 128).collect();
    let batches: Vec<u32> = (0..10).map(|n| 1 << n).collect();
    let models = ["a", "b", "c", "d", "e"];
    let document = swept(&models, &inputs, &batches, plausible);
    let chapters = chapters(vec![document]);
    let charts = charts(&chapters);
    let squares = charts.iter().map(|c| match &c.plot {
        Plot::Heat(heat) => heat.squares.iter().map(Vec::len).sum(),
        Plot::Curves(curves) => curves.curves.iter().map(|c| c.points.len()).sum::<usize>(),
        Plot::Bars(_) | Plot::Timeline(_) => 0,
    });
    assert!(charts.len() <= 84, "{}", charts.len());
    assert!(squares.sum::<usize>() < 10_000);
    assert_eq!(tables(&chapters).last().unwrap().rows.len(), 500);
}

proptest! {
    #[test]
    fn every_cell_is_in_the_table_with_its_figures(fates in proptest::collection::vec((0u8..4, 1u64..1 << 40), 1..40)) {
        let cells: Vec<Value> = fates.iter().enumerate().map(|(i, (fate, peak))| {
            let status = ["done", "failed", "skipped", "not_run"][usize::from(*fate)];
            json!({
                "cell": format!("c{i}"), "group": "g", "model": format!("m{}", i % 3), "status": status,
                "load": {"input_len": i % 4, "batch_size": i % 5},
                "row": {"cause": "oom", "figures": {"peak_bytes": peak}},
            })
        }).collect();
        let chapters = chapters(vec![json!({"cells": cells})]);
        let all = tables(&chapters).last().unwrap();
        let id = all.columns.iter().position(|c| c.key == "cell").unwrap();
        let ids: Vec<String> = all.rows.iter().map(|r| r[id].text.clone()).collect();
        let expected: Vec<String> = (0..fates.len()).map(|i| format!("c{i}")).collect();
        prop_assert_eq!(ids, expected);
        let peak = all.columns.iter().position(|c| c.key == "peak_gib");
        for (row, (fate, bytes)) in all.rows.iter().zip(&fates) {
            let shown = peak.and_then(|p| row[p].number);
            let right = (*fate == 0).then(|| *bytes as f64 / crate::units::GIB);
            prop_assert_eq!(shown, right);
        }
        // And each is either in a map or curve, or counted as having no figure.
        let without = fates.iter().filter(|f| f.0 != 0).count();
        let causes = tables(&chapters).find(|t| t.id == "sweep_causes");
        let counted: f64 = causes.map_or(0.0, |t| t.rows.iter().filter_map(|r| r[3].number).sum());
        prop_assert_eq!(counted as usize, without);
    }
}
