//! What holds for every engine's log parser, checked on a log of that engine.

use crate::engine::facts::{FactKey, FactValue, LogReport};
use crate::engine::{EngineId, parser_of};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::{BTreeMap, BTreeSet};

/// The report of a log.
pub fn report_of(engine: EngineId, log: &[u8]) -> LogReport {
    let mut parser = parser_of(engine);
    for line in log.split(|b| *b == b'\n') {
        parser.line(line, None);
    }
    let _ = parser.root_cause();
    parser.report()
}

/// The value of a fact, as text.
pub fn shown(r: &LogReport, key: &str) -> Option<String> {
    r.facts.get(key).map(|f| f.value.to_string())
}

/// Asserts that these facts have these values.
pub fn assert_values(r: &LogReport, pairs: &[(&str, &str)]) {
    for (key, value) in pairs {
        assert_eq!(shown(r, key).as_deref(), Some(*value), "{key}");
    }
}

fn values(report: &LogReport) -> BTreeMap<&FactKey, &FactValue> {
    report.facts.iter().map(|(k, f)| (k, &f.value)).collect()
}

/// Figures with where they stand: `weights_gib.TP0 1.5`.
fn figures(path: &str, value: &FactValue, found: &mut BTreeSet<String>) {
    match value {
        FactValue::Float(v) => drop(found.insert(format!("{path} {v}"))),
        FactValue::List(list) => {
            for (i, v) in list.iter().enumerate() {
                found.insert(format!("{path}.{i} {v}"));
            }
        }
        FactValue::Record(entries) => {
            for (key, value) in entries {
                figures(&format!("{path}.{key}"), value, found);
            }
        }
        _ => {}
    }
}

fn all_figures(report: &LogReport, found: &mut BTreeSet<String>) {
    for (key, fact) in &report.facts {
        figures(key.name(), &fact.value, found);
    }
}

/// Checks all of it.
pub fn hold(engine: EngineId, log: &str) {
    survives_anything(engine, log);
    is_not_moved_by_other_lines(engine, log);
    invents_nothing_when_cut(engine, log);
    bounds_its_report(engine, log);
}

fn survives_anything(engine: EngineId, log: &str) {
    let lines: Vec<String> = log.lines().map(str::to_owned).collect();
    let piece = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
    let part = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..60),
        piece.prop_map(move |(line, end)| {
            let line = line.get(&lines).as_bytes();
            line[..end.index(line.len() + 1)].to_vec()
        }),
    ];
    let mut runner = TestRunner::new(Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    });
    runner
        .run(&proptest::collection::vec(part, 0..12), |parts| {
            report_of(engine, &parts.concat());
            report_of(engine, &parts.join(&b'\n'));
            Ok(())
        })
        .unwrap();
}

fn is_not_moved_by_other_lines(engine: EngineId, log: &str) {
    let plain = report_of(engine, log.as_bytes());
    let echo = log.lines().map(|line| {
        let line = line.replace('"', "");
        format!("request {{\"prompt\": \"{line}\"}}\nINFO:     192.0.2.1 - GET /health 200\n{line}")
    });
    // The lines themselves stay as they are.
    let mixed: Vec<String> = echo
        .zip(log.lines())
        .map(|(echo, line)| {
            let earlier = echo.rsplit_once('\n').map_or("", |(earlier, _)| earlier);
            format!("{earlier}\n{line}\n")
        })
        .collect();
    let mixed = report_of(engine, mixed.concat().as_bytes());
    assert_eq!(values(&plain), values(&mixed));
    assert_eq!(plain.steps.len(), mixed.steps.len());
}

fn invents_nothing_when_cut(engine: EngineId, log: &str) {
    let mut true_figures = BTreeSet::new();
    let ends = log.match_indices('\n').map(|(at, _)| at);
    for end in ends.chain([log.len()]) {
        all_figures(
            &report_of(engine, &log.as_bytes()[..end]),
            &mut true_figures,
        );
    }
    for cut in 0..log.len() {
        let mut found = BTreeSet::new();
        all_figures(&report_of(engine, &log.as_bytes()[..cut]), &mut found);
        let invented: Vec<&String> = found.difference(&true_figures).collect();
        assert!(
            invented.is_empty(),
            "cut after {:?}: {invented:?}",
            String::from_utf8_lossy(&log.as_bytes()[cut.saturating_sub(80)..cut])
        );
    }
}

fn bounds_its_report(engine: EngineId, log: &str) {
    let mut parser = parser_of(engine);
    let lines: Vec<&str> = log.lines().collect();
    for n in 0..60_000_usize {
        // Ranks and devices that never end.
        let line = lines[n % lines.len()]
            .replace("TP1", &format!("TP{n}"))
            .replace("CUDA1", &format!("CUDA{n}"));
        parser.line(line.as_bytes(), None);
    }
    let size = serde_json::to_string(&parser.report()).unwrap().len();
    assert!(size < 4 << 20, "{size} bytes are kept");
}
