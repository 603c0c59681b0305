//! The probe for TensorRT-LLM's CUDA graphs against a stand-in of its modules, on this machine's
//! Python: every form in which releases keep their graphs. No real TensorRT-LLM was ever here.

use crate::common::skip;
use plimsoll::compare::graph_report::ProbeResult;
use plimsoll::engine::cuda_graphs::{GraphCounter, GraphLog};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What the probe wrote, what its output says of graphs, and how it ended.
struct Played {
    result: ProbeResult,
    log: Option<GraphLog>,
    code: Option<i32>,
}

fn python() -> bool {
    Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success())
}

fn play(era: &str, fault: &str, more: &[&str]) -> Played {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let result = dir.path().join("result.json");
    let output = Command::new("python3")
        .arg(root.join("scripts/probes/trtllm_cuda_graphs.py"))
        .args([
            "--model-path=Llama-8B",
            "--max-batch-size=8",
            "--max-draft-len=4",
            "--max-seq-len=64",
        ])
        .arg(format!("--output={}", result.display()))
        .args(more)
        .env("PYTHONPATH", root.join("tests/fixtures/trtllm_stand_in"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TLLM_LOG_LEVEL", "info")
        .env("TLLM_WORKER_USE_SINGLE_PROCESS", "1")
        .env("STAND_IN_ERA", era)
        .env("STAND_IN_FAULT", fault)
        .output()
        .unwrap();
    let mut graphs = GraphCounter::default();
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().for_each(|l| graphs.line(l));
    let text = std::fs::read_to_string(result).unwrap_or_else(|e| panic!("{e}: {said}"));
    Played {
        result: serde_json::from_str(&text).unwrap(),
        log: graphs.finish(4),
        code: output.status.code(),
    }
}

macro_rules! needs_python {
    ($test:literal) => {
        if !python() {
            skip::skip($test, "no python3");
            return;
        }
    };
}

#[test]
fn graphs_are_found_in_every_form_and_the_log_agrees() {
    needs_python!("graphs_are_found_in_every_form_and_the_log_agrees");
    let (max, both) = (BTreeMap::from([(4, 8)]), BTreeMap::from([(0, 8), (4, 8)]));
    for era in ["A", "B", "C", "D", "E"] {
        let unset = play(era, "", &[]);
        let set = play(era, "", &["--max-concurrency=2"]);
        assert_eq!((unset.code, set.code), (Some(0), Some(0)));
        // The oldest form has no draft lengths, and captured the longest only.
        let expected = if era == "A" { &max } else { &both };
        for (played, expected) in [(&unset, &max), (&set, expected)] {
            let structure = played.result.structure.as_ref().unwrap();
            assert_eq!(&structure.by_draft_len, expected, "{era}");
            assert_eq!(structure.total, expected.values().sum::<u64>());
            assert_eq!(structure.keys.len() as u64, structure.total);
            let runner = structure.attribute.ends_with(".cuda_graph_runner.graphs");
            assert_eq!(runner, era > "B", "{}", structure.attribute);
            assert_eq!(
                &played.log.as_ref().unwrap().target.by_draft_len,
                expected,
                "{era}"
            );
        }
        let grown = |p: &Played| {
            let device =
                |m: Option<plimsoll::compare::graph_report::ProbeMemory>| m?.device_used_bytes;
            device(p.result.memory_after).unwrap() - device(p.result.memory_before).unwrap()
        };
        let more = (expected.values().sum::<u64>() - 8) * (100 << 20);
        assert_eq!(grown(&set) - grown(&unset), more, "{era}");
    }
}

#[test]
fn what_goes_wrong_is_told_by_its_kind() {
    needs_python!("what_goes_wrong_is_told_by_its_kind");
    for (fault, kind) in [("oom", "out_of_memory"), ("missing", "missing_module")] {
        let played = play("C", fault, &[]);
        assert_eq!(played.result.error.unwrap().kind, kind);
        assert_eq!(played.code, Some(1));
        assert!(played.result.memory_after.is_none());
    }
    let nowhere = play("C", "", &["--model-path=/no/such/model"]);
    assert_eq!(nowhere.result.error.unwrap().kind, "model_path");
}

#[test]
fn an_engine_in_workers_is_left_to_its_log() {
    needs_python!("an_engine_in_workers_is_left_to_its_log");
    let played = play("C", "workers", &["--max-concurrency=2"]);
    assert_eq!(
        (played.code, played.result.error.is_none()),
        (Some(0), true)
    );
    assert!(played.result.structure.is_none());
    assert!(played.result.structure_error.unwrap().contains("worker"));
    // This process' allocator holds nothing of an engine elsewhere: unknown, not 0.
    let after = played.result.memory_after.unwrap();
    assert_eq!((after.allocated_bytes, after.reserved_bytes), (None, None));
    assert!(after.device_used_bytes.is_some());
    assert_eq!(played.log.unwrap().target.total, 16);
    // The known fault of a release shows in what was captured.
    let faulty = play("C", "no_zero", &["--max-concurrency=2"]);
    assert_eq!(
        faulty.result.structure.unwrap().by_draft_len,
        BTreeMap::from([(4, 8)])
    );
}
