//! Tests of the document: its levels follow from their rows, and its words from its figures.

use super::samples::{
    answered_request, level_without_profile, mixed_levels, refused_request, sample_head,
    sample_level, sample_load,
};
use super::*;
use crate::capture::{ErrorKind, RequestRow};
use crate::engine::LoadKind;
use crate::profile::{LatencyStats, RepeatResult};
use proptest::prelude::*;

fn near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a - b).abs() <= 1e-9 * b.abs().max(1.0))
}

#[test]
fn the_levels_of_an_engine_with_a_pool() {
    let runs = [
        sample_level(8, 20_100 << 20, Some(64 << 20)),
        sample_level(1, 20_000 << 20, Some(8 << 20)),
    ];
    let e = Experiment::experiment_of_runs(sample_head(ExperimentKind::Concurrency), &runs);
    let names: Vec<&str> = e.levels.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["1", "8"], "in the order of what is varied");
    let (one, eight) = (&e.levels[0], &e.levels[1]);
    // 4 requests of 100 ms one after the other, 10 tokens each.
    assert!(near(one.mean_latency_s, 0.1) && near(one.total_tokens_per_s, 100.0));
    assert!(near(one.mean_tokens_per_s, 100.0) && near(one.mean_ttft_s, 0.01));
    // 4 rounds of 800 ms, 8 at once.
    assert!(near(eight.total_tokens_per_s, 100.0) && near(eight.mean_tokens_per_s, 12.5));
    let all = e.readings.join("\n");
    for words in [
        "100.0 tok/s at concurrency 1, 100.0 tok/s at concurrency 8, 1.00 times as much for 8.0 times the requests",
        "Peak GPU memory is flat",
        "KV pool of 8.000 GiB at its start",
        "8.00 MiB at concurrency 1, 64.00 MiB at concurrency 8; 0.8 % of the pool at most",
    ] {
        assert!(all.contains(words), "{words}\n{all}");
    }
    assert!(
        e.reason_for_figure("peak_alloc_bytes")
            .unwrap()
            .contains("only a probe")
    );
    assert_eq!(e.reason_for_figure("kv_used_bytes"), None);
    assert_eq!(
        (one.peak_alloc_bytes, one.peak_reserved_bytes),
        (None, None)
    );
}

#[test]
fn memory_that_grows_is_not_called_flat() {
    let runs = [
        sample_level(1, 16 << 30, None),
        sample_level(4, 23 << 30, None),
    ];
    let e = Experiment::experiment_of_runs(sample_head(ExperimentKind::Concurrency), &runs);
    let memory = e.readings.iter().find(|r| r.starts_with("Peak")).unwrap();
    assert_eq!(
        memory,
        "Peak GPU memory: 16.000 GiB at concurrency 1, 23.000 GiB at concurrency 4; between 16.000 and 23.000 GiB over all levels."
    );
    assert!(!e.readings.iter().any(|r| r.contains("KV used")));
    assert!(e.not_measured.contains_key("kv_used_bytes"));
}

#[test]
fn levels_without_figures_say_why_and_have_none() {
    let runs = [
        sample_level(1, 16 << 30, None),
        level_without_profile(2, LevelState::Failed, "oom", "CUDA out of memory"),
        level_without_profile(4, LevelState::Skipped, "implied_oom", "2 ran out of memory"),
    ];
    let e = Experiment::experiment_of_runs(sample_head(ExperimentKind::Concurrency), &runs);
    assert_eq!(e.completed_levels().count(), 1);
    for level in &e.levels[1..] {
        let figures = [
            level.mean_latency_s,
            level.total_tokens_per_s,
            level.error_rate,
        ];
        assert_eq!(figures, [None; 3]);
        assert_eq!((level.total, level.peak_bytes), (None, None));
    }
    assert!(
        e.readings
            .contains(&"Level 2 was tried and failed: CUDA out of memory.".to_owned())
    );
    assert!(
        e.readings
            .contains(&"Level 4 was skipped: 2 ran out of memory.".to_owned())
    );
    // Nothing is compared with one level alone.
    assert_eq!(e.readings.len(), 3, "{:#?}", e.readings);
}

#[test]
fn a_mixture_lies_between_its_lengths_and_is_identified_by_them() {
    let e = Experiment::experiment_of_runs(sample_head(ExperimentKind::Mixed), &mixed_levels());
    let names: Vec<&str> = e.levels.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["short", "mixed", "long"]);
    // The mean of what was sent, not of what the share would make.
    assert_eq!(e.levels[1].x, 112.0);
    let counts: Vec<(u32, u64)> = (e.levels[1].by_prompt.iter())
        .map(|l| (l.prompt_tokens, l.successful))
        .collect();
    assert_eq!(counts, [(64, 3), (256, 1)]);
    assert!(e.levels[0].by_prompt.is_empty());
    assert!(e.readings.contains(
        &"Prompts of 256 tokens: mean latency 0.356 s among their like, 0.356 s in the mixture (1 of 4 requests)."
            .to_owned()
    ), "{:#?}", e.readings);
}

#[test]
fn rows_are_named_by_level_and_stand_at_their_time() {
    let mut failing = sample_level(2, 1 << 30, None);
    failing.requests.push(refused_request(8, ErrorKind::Status));
    let runs = [failing, sample_level(1, 1 << 30, None)];
    let e = Experiment::experiment_of_runs(sample_head(ExperimentKind::Concurrency), &runs);
    let records = e.request_records(&runs);
    assert_eq!(records.len(), 4 + 9);
    let ids: std::collections::BTreeSet<&str> =
        records.iter().map(|r| r.request_id.as_str()).collect();
    assert_eq!(ids.len(), records.len());
    let second = &records[1];
    assert_eq!(second.request_id, "1-r1-1");
    assert_eq!(
        second.timestamp.as_deref(),
        Some("2025-11-22T08:26:40.100Z")
    );
    assert_eq!((second.seq_prompt, second.seq_generate), (128, Some(10)));
    let last = records.last().unwrap();
    assert_eq!((last.tokens_per_s, last.ttft_s), (None, None));
    assert!(last.error.as_ref().unwrap().starts_with("refused: "));
}

/// A level of a bench that runs batches in one process, as it reports on CPU.
fn batches() -> LevelRun {
    let result = include_str!("../../tests/fixtures/transformers/cpu-bfloat16.json");
    let engine = crate::engine::EngineId::from_name("transformers").unwrap();
    let bench = LoadKind::ALL
        .iter()
        .find(|k| k.as_str() == "probe")
        .unwrap();
    let kind = bench.of_engine().unwrap();
    let mut run = LevelRun {
        requests: Vec::new(),
        ..sample_level(4, 400 << 20, None)
    };
    let profile = run.profile.as_mut().unwrap();
    profile.parameters.bench = "probe".into();
    profile.torch_memory = Some((engine.read_memory)(kind, result).unwrap().memory);
    profile.latency_stats = Some(LatencyStats {
        bench: *bench,
        mean_latency_ms: None,
        tokens_per_second: None,
        requests_per_second: None,
        mean_latency_spread: None,
        tokens_per_second_spread: None,
        peak_bytes_spread: None,
        repeats: vec![RepeatResult {
            repeat: 1,
            peak_bytes: None,
            result: (engine.read_bench)(kind, result).unwrap(),
            notes: Vec::new(),
        }],
    });
    run
}

#[test]
fn a_bench_of_batches_has_its_requests_and_no_allocator_on_cpu() {
    let runs = [batches()];
    let e = Experiment::experiment_of_runs(sample_head(ExperimentKind::Concurrency), &runs);
    let level = &e.levels[0];
    assert_eq!(
        (level.total, level.failed, level.error_rate),
        (Some(12), Some(0), Some(0.0))
    );
    assert!(
        near(level.p95_latency_s, 5.512_553_330_999_708),
        "{:?}",
        level.p95_latency_s
    );
    assert_eq!(
        level.peak_alloc_bytes, None,
        "resident memory is no allocation of torch"
    );
    assert!(
        e.reason_for_figure("peak_alloc_bytes")
            .unwrap()
            .contains("no account")
    );
    assert_eq!(e.reason_for_figure("requests"), None);
    let records = e.request_records(&runs);
    assert_eq!(records.len(), 12);
    let first = &records[0];
    assert_eq!((first.seq_prompt, first.seq_generate), (64, Some(16)));
    assert_eq!(first.timestamp, None, "when it was sent is not known");
    assert!(
        e.notes.iter().any(|n| n.contains("sequence")),
        "{:?}",
        e.notes
    );
}

#[test]
fn a_gauge_that_is_read_too_seldom_for_the_load_is_no_figure() {
    let mut runs = [
        sample_level(1, 1 << 30, Some(256 << 10)),
        sample_level(4, 1 << 30, Some(256 << 10)),
    ];
    for run in &mut runs {
        // 2048 bytes per token: prompts of 128 tokens take 256 KiB each.
        let engine = &mut run.profile.as_mut().unwrap().vllm_internal_metrics;
        engine.total_gpu_kv_cache_tokens = Some(4 << 20);
    }
    let e = Experiment::experiment_of_runs(sample_head(ExperimentKind::Concurrency), &runs);
    let used: Vec<Option<u64>> = e.levels.iter().map(|l| l.kv_used_bytes).collect();
    assert_eq!(used, [Some(256 << 10), None]);
    let why = e.reason_for_figure("kv_used_bytes").unwrap();
    assert!(
        why.contains("once a second") && why.contains("4 prompts"),
        "{why}"
    );
}

/// Any request: answered, failed in some way, or cut off by the end.
fn any_row() -> impl Strategy<Value = RequestRow> {
    let moments = (
        0..1000i64,
        0..500i64,
        0..500i64,
        prop::option::weighted(0.9, 0..200u64),
    );
    (moments, 0..6u8, 1..3u32).prop_map(|((begin, first, last, tokens), end, repeat)| {
        let mut row = answered_request(0, begin, begin + first, begin + first + last, 0);
        row.output_tokens = tokens;
        row.repeat = repeat;
        match end {
            0 => RequestRow {
                error: refused_request(0, ErrorKind::Cut).error,
                ..row
            },
            1 => RequestRow {
                error: refused_request(0, ErrorKind::Cancelled).error,
                ..row
            },
            _ => row,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_figures_of_a_level_follow_from_its_rows(
        rows in prop::collection::vec(any_row(), 0..40),
    ) {
        let run = LevelRun { requests: rows, ..sample_level(1, 1 << 30, None) };
        let runs = [run];
        let e = Experiment::experiment_of_runs(sample_head(ExperimentKind::Concurrency), &runs);
        let level = &e.levels[0];
        let records = e.request_records(&runs);
        if records.is_empty() {
            prop_assert_eq!(level.total, None);
            return Ok(());
        }
        let (ok, bad): (Vec<&RequestRecord>, Vec<&RequestRecord>) =
            records.iter().partition(|r| r.error.is_none());
        let stopped = bad.iter().filter(|r| r.error.as_ref().unwrap().starts_with("cancelled"));
        let failed = (bad.len() - stopped.count()) as u64;
        prop_assert_eq!(level.successful, Some(ok.len() as u64));
        prop_assert_eq!(level.failed, Some(failed));
        prop_assert_eq!(level.total, Some(ok.len() as u64 + failed));
        let mean = |pick: fn(&RequestRecord) -> Option<f64>| {
            let all: Vec<f64> = ok.iter().filter_map(|r| pick(r)).collect();
            (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
        };
        for (figure, by_rows) in [
            (level.mean_latency_s, mean(|r| Some(r.total_latency_s))),
            (level.mean_ttft_s, mean(|r| r.ttft_s)),
            (level.mean_tokens_per_s, mean(|r| r.tokens_per_s)),
        ] {
            match by_rows {
                Some(mean) => prop_assert!(near(figure, mean), "{figure:?} {mean}"),
                None => prop_assert_eq!(figure, None),
            }
        }
        let latencies = ok.iter().map(|r| r.total_latency_s);
        let most = latencies.fold(f64::NEG_INFINITY, f64::max);
        if let Some(p95) = level.p95_latency_s {
            prop_assert!(p95 <= most + 1e-9);
        }
        // All together are no slower than the rows that they are made of would be alone.
        if let (Some(total), Some(rate)) = (level.total_tokens_per_s, level.error_rate) {
            prop_assert!(total >= 0.0 && (0.0..=1.0).contains(&rate));
        }
    }
}

#[test]
fn the_order_of_the_runs_changes_nothing() {
    let [one, two, four] = [1, 2, 4].map(|n| sample_level(n, 1 << 30, None));
    let of = |runs: &[LevelRun]| {
        Experiment::experiment_of_runs(sample_head(ExperimentKind::Concurrency), runs)
    };
    let sorted = of(&[one.clone(), two.clone(), four.clone()]);
    assert_eq!(of(&[four.clone(), one.clone(), two.clone()]), sorted);
    assert_eq!(of(&[two, four, one]), sorted);
}

#[test]
fn a_mixtures_mean_length_follows_its_share() {
    let mut load = sample_load(1, 256);
    assert_eq!(load.mean_prompt_tokens(), 256.0);
    load.short_prompts = Some(ShortPrompts {
        input_len: 64,
        share: 0.75,
    });
    assert_eq!(load.mean_prompt_tokens(), 112.0);
}
