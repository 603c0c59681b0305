//! Tests of the chapter that holds two against each other.

use super::super::samples_tests::{render_plain, sample_run, set_parts};
use super::*;
use crate::breakdown::Component;
use crate::profile::Profile;
use crate::report::content::ContentBlock;
use crate::report::material::{ReportRun, StoredDocument};
use serde_json::{Value, json};

fn of(material: Material) -> Vec<Chapter> {
    let material = Material {
        compare: true,
        ..material
    };
    write_compare_chapter(&material, &mut Sources::default())
}

fn measured(name: &str, host: &str, dtype: &str, peak: f64, weights: f64) -> ReportRun {
    sample_run(name, |p: &mut Profile| {
        p.metadata.timestamp = "2026-11-20T10:00:00Z".into();
        p.metadata.host.hostname = host.into();
        p.metadata.host.kernel = "6.8.0".into();
        p.dtype_metadata.weights = Some(dtype.into());
        p.parameters.workload.batch_size = Some(8);
        p.vllm_internal_metrics.total_gpu_kv_cache_tokens = Some(1000);
        let kv = peak - weights - 0.75;
        set_parts(
            p,
            peak,
            &[
                (Component::ModelWeights, weights),
                (Component::KvCache, kv),
                (Component::NonTorch, 0.5),
            ],
        );
    })
}

#[test]
fn two_runs_on_two_hosts_side_by_side() {
    let material = Material {
        runs: vec![
            measured("a.json", "node1", "bfloat16", 20.0, 14.0),
            measured("b.json", "node2", "bfloat16", 22.0, 14.0),
        ],
        ..Material::default()
    };
    insta::assert_snapshot!(render_plain(&of(material)));
}

#[test]
fn what_cannot_be_compared_is_named() {
    let material = Material {
        runs: vec![
            measured("a.json", "h", "bfloat16", 20.0, 14.0),
            measured("b.json", "h", "float8", 13.0, 7.0),
        ],
        ..Material::default()
    };
    let chapters = of(material);
    let found = chapters[0].blocks.iter().any(|b| match b {
        ContentBlock::Note(n) => {
            n.severity == Severity::Error && n.message.contains("weights_dtype differs")
        }
        _ => false,
    });
    assert!(found, "{}", render_plain(&chapters));
    let one = Material {
        runs: vec![measured("a.json", "h", "bfloat16", 20.0, 14.0)],
        ..Material::default()
    };
    assert!(render_plain(&of(one)).contains("takes two runs or two sweeps; 1 run and 0 sweeps"));
    assert!(write_compare_chapter(&Material::default(), &mut Sources::default()).is_empty());
}

fn cell(id: &str, container: &str, batch: u32, peak_gib: Option<u64>) -> Value {
    json!({
        "cell": id, "group": "g", "model": "m", "place": {"container": container},
        "status": if peak_gib.is_some() { "done" } else { "failed" },
        "load": {"input_len": 128, "output_len": 16, "batch_size": batch},
        "row": {"cause": if peak_gib.is_some() { Value::Null } else { "oom".into() },
                "figures": {"peak_bytes": peak_gib.map(|g| g << 30)}},
    })
}

#[test]
fn cells_of_two_sweeps_are_matched_by_id_then_by_load() {
    let stored = |name: &str, cells: Vec<Value>| StoredDocument {
        name: name.into(),
        document: json!({"name": name, "cells": cells}),
    };
    let material = Material {
        sweeps: vec![
            stored(
                "first",
                vec![
                    cell("one", "x", 1, Some(10)),
                    cell("two", "x", 2, Some(10)),
                    cell("three", "x", 4, Some(12)),
                    cell("alone", "x", 64, Some(50)),
                ],
            ),
            stored(
                "second",
                vec![
                    cell("other", "y", 2, Some(11)),
                    cell("one", "x", 1, Some(12)),
                    cell("third", "y", 4, None),
                    cell("new", "y", 128, Some(60)),
                ],
            ),
        ],
        ..Material::default()
    };
    insta::assert_snapshot!(render_plain(&of(material)));
}

#[test]
fn sweeps_without_a_common_cell_cannot_be_compared() {
    let stored = |batch| StoredDocument {
        name: "s".into(),
        document: json!({"cells": [cell(&format!("c{batch}"), "x", batch, Some(1))]}),
    };
    let material = Material {
        sweeps: vec![stored(1), stored(2)],
        ..Material::default()
    };
    assert!(render_plain(&of(material)).contains("no cell in common"));
}

#[test]
fn a_percentage_of_0_is_undefined_and_not_unknown() {
    let why = |a, b| format!("{:?}", change_in_percent(a, b));
    assert!(why(Some(0.0), Some(1.0)).contains("from 0 has no percentage"));
    assert!(why(None, Some(1.0)).contains("not known of both"));
    assert!(why(Some(2.0), Some(1.0)).contains("-50.0"));
}
