//! Profiles side by side: sums that hold, noise that is called noise, and what stays unknown; the
//! documents of `ablate` and `cuda-graphs` as people read them.

use crate::common::captures;
use crate::common::pages::{plain, terminal_page};
use captures::*;
use plimsoll::breakdown::{Component, Part};
use plimsoll::capture::RunEnd;
use plimsoll::compare::ablation::{Ablation, Arm, ArmRuns, Run};
use plimsoll::compare::graph_report::{
    ArmOutcome, GraphReport, GraphSettings, HostMemory, ProbeError, ProbeMemory, ProbeResult,
    StructureCount,
};
use plimsoll::compare::graphs::{GraphReading, Reading, Thresholds};
use plimsoll::compare::{Comparison, Judgement, Row, compare_groups};
use plimsoll::engine::cuda_graphs::{GraphCounter, GraphLog};
use plimsoll::engine::facts::{Finding, Severity};
use plimsoll::profile::Profile;
use proptest::prelude::*;
use std::sync::OnceLock;

const THRESHOLDS: Thresholds = Thresholds {
    low_mib: 500.0,
    strong_mib: 2048.0,
};

fn idle() -> Profile {
    static ONE: OnceLock<Profile> = OnceLock::new();
    ONE.get_or_init(|| idle_reference().derive()).clone()
}

/// A run whose peak has these parts.
fn run_of(parts: &[(Component, i64)]) -> Profile {
    let mut profile = idle();
    let total: i64 = parts.iter().map(|p| p.1).sum();
    profile.memory_breakdown.total_measured_bytes = Some(total.max(0) as u64);
    profile.memory_breakdown.components = parts
        .iter()
        .map(|(component, bytes)| Part {
            component: *component,
            bytes: *bytes,
            gb: 0.0,
            percent: 0.0,
            confidence: plimsoll::breakdown::Confidence::unknown_confidence(),
        })
        .collect();
    profile
}

fn mib(n: i64) -> i64 {
    n * MIB as i64
}

fn run(weights: i64, graphs: Option<i64>, rest: i64) -> Profile {
    let mut parts = vec![(Component::ModelWeights, mib(weights))];
    parts.extend(graphs.map(|g| (Component::CudaGraphs, mib(g))));
    parts.push((Component::Unexplained, mib(rest)));
    run_of(&parts)
}

fn row<'a>(c: &'a Comparison, key: &str) -> &'a Row {
    c.components.iter().find(|r| r.key == key).unwrap()
}

fn sums(c: &Comparison) {
    let parts: f64 = c.components.iter().filter_map(|r| r.difference).sum();
    assert_eq!(
        c.total.difference.unwrap(),
        parts + c.remainder.difference.unwrap()
    );
}

#[test]
fn what_one_arm_does_not_know_stays_unknown_and_the_sums_hold() {
    let (a, b) = ([run(100, None, 20)], [run(100, Some(300), 25)]);
    let c = compare_groups(&a, &b);
    let graphs = row(&c, "cuda_graphs");
    assert_eq!(
        (graphs.a.median, graphs.difference, graphs.judgement),
        (None, None, None)
    );
    assert!(graphs.a.unknown.is_some() && graphs.b.unknown.is_none());
    assert_eq!(graphs.b.median, Some(mib(300) as f64));
    assert_eq!(c.one_sided, ["cuda_graphs"]);
    // The graphs of B are in what is not compared, and so in the difference of the totals.
    assert_eq!(c.remainder.difference, Some(mib(305) as f64));
    assert_eq!(c.total.difference, Some(mib(305) as f64));
    sums(&c);
    assert_eq!(c.total.judgement, Some(Judgement::SpreadUnknown));
    assert_eq!(row(&c, "model_weights").judgement, Some(Judgement::Equal));
}

#[test]
fn a_difference_within_the_spread_of_the_repeats_is_noise() {
    let a = [run(100, None, 10), run(100, None, 30), run(100, None, 20)];
    let near = [run(100, None, 25), run(100, None, 26)];
    let far = [run(100, None, 80), run(100, None, 81)];
    // Apart, and not by more than both spread: two more runs might well meet.
    let doubtful = [run(100, None, 31), run(100, None, 51)];
    assert_eq!(
        compare_groups(&a, &doubtful).total.judgement,
        Some(Judgement::WithinNoise)
    );
    assert_eq!(
        compare_groups(&a, &near).total.judgement,
        Some(Judgement::WithinNoise)
    );
    assert_eq!(
        compare_groups(&a, &far).total.judgement,
        Some(Judgement::BeyondNoise)
    );
    // One run has no spread, however far the other arm is.
    assert_eq!(
        compare_groups(&a, &far[..1]).total.judgement,
        Some(Judgement::SpreadUnknown)
    );
    assert_eq!(
        compare_groups(&a, &far).total.a.median,
        Some(mib(120) as f64)
    );
}

#[test]
fn a_failed_arm_has_reasons_and_no_figures() {
    let mut failed = run(100, None, 3);
    failed.metadata.outcome = RunEnd::BenchFailed("the bench ended with 1: out of memory".into());
    let c = compare_groups(&[run(100, None, 20)], &[failed]);
    assert_eq!((c.total.b.median, c.total.difference), (None, None));
    assert!(
        c.total
            .b
            .unknown
            .as_ref()
            .unwrap()
            .contains("out of memory")
    );
    assert_eq!(c.remainder.difference, None);
    // The other arm is told as it stands.
    assert_eq!(c.remainder.a.median, Some(mib(20) as f64));
    assert_eq!(
        (c.remainder.label.as_str(), c.one_sided.len()),
        ("Unexplained", 0)
    );
    let nothing = compare_groups(&[run(1, None, 1)], &[]);
    assert_eq!(nothing.total.b.unknown.as_deref(), Some("no run was made"));
}

fn group() -> impl Strategy<Value = Vec<Profile>> {
    const PARTS: [Component; 5] = [
        Component::Baseline,
        Component::ModelWeights,
        Component::KvCache,
        Component::CudaGraphs,
        Component::PageCache,
    ];
    let part = proptest::option::of(-(1i64 << 40)..(1i64 << 40));
    let profile = (
        proptest::array::uniform5(part),
        -(1i64 << 40)..(1i64 << 40),
        any::<bool>(),
    );
    let profile = profile.prop_map(|(parts, rest, whole)| {
        let parts = PARTS.iter().zip(parts);
        let mut parts: Vec<(Component, i64)> =
            parts.filter_map(|(c, bytes)| Some((*c, bytes?))).collect();
        // A peak is not negative.
        let sum: i64 = parts.iter().map(|p| p.1).sum();
        parts.push((Component::Unexplained, rest.max(-sum)));
        let mut profile = run_of(&parts);
        if !whole {
            profile.metadata.outcome = RunEnd::Interrupted;
        }
        profile
    });
    proptest::collection::vec(profile, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn parts_sum_and_swapping_the_arms_negates(a in group(), b in group()) {
        let (c, swapped) = (compare_groups(&a, &b), compare_groups(&b, &a));
        if let Some(total) = c.total.difference {
            let parts: f64 = c.components.iter().filter_map(|r| r.difference).sum();
            prop_assert_eq!(total, parts + c.remainder.difference.unwrap());
        }
        let rows = |c: &Comparison| {
            let all = [&c.total].into_iter().chain(&c.components).chain([&c.remainder]).chain(&c.others);
            all.map(|r| (r.key.clone(), r.difference, r.judgement)).collect::<Vec<_>>()
        };
        for ((key, there, noise), (other, back, same)) in rows(&c).into_iter().zip(rows(&swapped)) {
            prop_assert_eq!(key, other);
            prop_assert_eq!(there.map(|d| -d), back);
            prop_assert_eq!(noise, same);
        }
        for r in &c.components {
            prop_assert_eq!(r.a.median.is_none(), r.a.unknown.is_some());
            prop_assert_eq!(r.b.median.is_none(), r.b.unknown.is_some());
        }
    }
}

fn ablation(a: Vec<Profile>, b: Vec<Profile>) -> Ablation {
    let arm = |name: &str, args: &[&str], first: u32, profiles: Vec<Profile>| -> ArmRuns {
        let arm = Arm {
            name: name.into(),
            engine_args: args.iter().map(|w| (*w).to_owned()).collect(),
            runs: (0u32..)
                .zip(&profiles)
                .map(|(i, p)| Run {
                    order: first + 2 * i,
                    profile: "toy-profile_20260102_030405.json".into(),
                    outcome: p.metadata.outcome.clone(),
                })
                .collect(),
            ..Arm::default()
        };
        (arm, profiles)
    };
    let a = arm("eager", &["--enforce-eager"], 1, a);
    let b = arm("graphs", &[], 2, b);
    Ablation::compare_arms(a, b, None, "2026-01-02T03:04:05Z".into()).unwrap()
}

#[test]
fn the_page_of_an_ablation() {
    let slow = |mut p: Profile, ms: f64| {
        p.latency_stats.as_mut().unwrap().mean_latency_ms = Some(ms);
        p
    };
    let a = vec![
        slow(run(512, None, 20), 200.0),
        slow(run(512, None, 24), 204.0),
    ];
    let b = vec![
        slow(run(512, Some(640), 21), 150.0),
        slow(run(512, Some(648), 23), 151.0),
    ];
    let mut ablation = ablation(a, b);
    ablation.graphs = Some(GraphReading::reading_of_comparison(
        &ablation.comparison,
        THRESHOLDS,
    ));
    assert_eq!(
        ablation.graphs.as_ref().unwrap().reading,
        Some(Reading::Moderate)
    );
    assert!(ablation.simulated, "the reference engine only pretends");
    insta::assert_snapshot!(terminal_page(
        &plimsoll::report::ablation::ablation_report(&ablation),
        plain(true, 100)
    ));
}

#[test]
fn what_the_runs_warn_of_stands_beside_the_comparison() {
    let mut warned = run(512, None, 20);
    warned.findings = vec![
        Finding::new("unused", Severity::Warning, "the size was not used"),
        Finding::new("by_the_way", Severity::Info, "nothing to see"),
    ];
    let ablation = ablation(vec![warned.clone(), warned], vec![run(512, None, 20)]);
    assert_eq!(ablation.a.findings.len(), 1, "each once");
    let page = terminal_page(
        &plimsoll::report::ablation::ablation_report(&ablation),
        plain(true, 100),
    );
    assert!(page.contains("A: the size was not used"), "{page}");
    assert!(!page.contains("nothing to see"), "{page}");
}

#[test]
fn the_page_of_an_ablation_whose_second_arm_failed() {
    let mut failed = run(512, None, 3);
    failed.metadata.outcome = RunEnd::BenchFailed("the bench ended with 1: out of memory".into());
    let mut ablation = ablation(vec![run(512, None, 20)], vec![failed]);
    ablation.graphs = Some(GraphReading::reading_of_comparison(
        &ablation.comparison,
        THRESHOLDS,
    ));
    assert_eq!(ablation.graphs.as_ref().unwrap().reading, None);
    insta::assert_snapshot!(terminal_page(
        &plimsoll::report::ablation::ablation_report(&ablation),
        plain(false, 72)
    ));
}

/// What the log of an arm says that captured these.
fn logged(by_draft_len: &[(u64, u64)]) -> Option<GraphLog> {
    let mut counter = GraphCounter::default();
    for (len, n) in by_draft_len {
        for size in 1..=*n {
            counter.line(&format!(
                "Run generation-only CUDA graph warmup for batch size={size}, draft_len={len}"
            ));
        }
    }
    counter.finish(4)
}

fn outcome(
    max_concurrency: Option<u32>,
    by_draft_len: &[(u64, u64)],
    device_mib: u64,
) -> ArmOutcome {
    let memory = |device: u64| ProbeMemory {
        allocated_bytes: Some(device / 2),
        reserved_bytes: None,
        max_allocated_bytes: Some(device / 2),
        device_used_bytes: Some(device + 700 * MIB),
    };
    ArmOutcome {
        max_concurrency,
        probe: ProbeResult {
            tensorrt_llm: Some("1.1.0".into()),
            torch: Some("2.8.0".into()),
            kv_cache_max_tokens: Some(8192),
            memory_before: Some(memory(0)),
            memory_after: Some(memory(device_mib * MIB)),
            structure: Some(StructureCount {
                attribute: "llm._executor.engine.model_engine.cuda_graph_runner.graphs".into(),
                total: by_draft_len.iter().map(|p| p.1).sum(),
                by_draft_len: by_draft_len.iter().copied().collect(),
                keys: vec!["(32, 4, False)".into()],
            }),
            ..ProbeResult::default()
        },
        log: logged(by_draft_len),
        host: Some(HostMemory {
            backend: "nvml".into(),
            gpu: true,
            before_bytes: 700 * MIB,
            after_bytes: (700 + device_mib) * MIB,
            peak_bytes: (900 + device_mib) * MIB,
        }),
    }
}

fn report(arms: [ArmOutcome; 2], thresholds: Thresholds) -> GraphReport {
    let settings = GraphSettings {
        max_batch_size: 32,
        max_draft_len: 4,
        max_concurrency_test: 16,
        max_seq_len: 2048,
    };
    let head = GraphReport {
        timestamp: "2026-01-02T03:04:05Z".into(),
        container: "trt".into(),
        image: "tensorrt-llm:1.1.0".into(),
        model_name: "Llama-8B".into(),
        model_path: "/models/Llama-8B".into(),
        settings,
        thresholds,
        ..GraphReport::default()
    };
    GraphReport::report_of_arms(head, arms)
}

fn codes(report: &GraphReport) -> Vec<&str> {
    report.findings.iter().map(|f| f.code.as_str()).collect()
}

/// Arms without a graph of draft length 0 and with it.
fn two_arms() -> [ArmOutcome; 2] {
    [
        outcome(None, &[(4, 32)], 3456),
        outcome(Some(16), &[(0, 32), (4, 32)], 6788),
    ]
}

/// The document of both.
pub fn graphs_of_two_arms() -> GraphReport {
    report(two_arms(), THRESHOLDS)
}

#[test]
fn the_cost_of_a_graph_is_measured_and_read_against_the_flags() {
    let r = graphs_of_two_arms();
    assert_eq!(r.analysis.additional_cuda_graphs, Some(32));
    let first = &r.analysis.overheads[0];
    assert_eq!(
        (first.witness.as_str(), first.overhead_mib),
        ("device", 3332.0)
    );
    assert_eq!(first.mib_per_additional_graph, Some(3332.0 / 32.0));
    assert!((first.overhead_percent.unwrap() - 96.4).abs() < 0.05);
    assert_eq!(r.analysis.reading, Some(Reading::Strong));
    assert_eq!(r.arms[1].num_cuda_graphs, Some(64));
    assert_eq!(r.arms[1].cuda_graphs_by_draft_len["draft_len_0"], 32);
    assert_eq!(codes(&r), [""; 0]);
    assert!(!r.simulated);
    let lax = Thresholds {
        low_mib: 4000.0,
        strong_mib: 5000.0,
    };
    assert_eq!(report(two_arms(), lax).analysis.reading, Some(Reading::Low));
    insta::assert_snapshot!(terminal_page(
        &plimsoll::report::graphs::graphs_report(&r),
        plain(true, 100)
    ));
}

#[test]
fn the_known_fault_and_counts_that_disagree_are_told() {
    let mut faulty = outcome(Some(16), &[(4, 32)], 3456);
    faulty.log = logged(&[(4, 31)]);
    let r = report([outcome(None, &[(4, 32)], 3456), faulty], THRESHOLDS);
    assert_eq!(
        codes(&r),
        ["graph_counts_disagree", "draft_len_zero_missing"]
    );
    assert!(r.findings[0].message.contains("31 of draft_len 4"));
    // Nothing was added, so nothing has a price: unknown, with its reason, and not 0 or infinite.
    assert_eq!(r.analysis.additional_cuda_graphs, Some(0));
    assert!(
        r.analysis
            .overheads
            .iter()
            .all(|o| o.mib_per_additional_graph.is_none())
    );
    assert!(
        r.unknown["analysis.overheads[].mib_per_additional_graph"].contains("no additional graph")
    );
    assert_eq!(r.analysis.reading, Some(Reading::Low));
}

#[test]
fn an_engine_out_of_reach_is_counted_by_its_log() {
    let mut far = outcome(Some(16), &[(0, 32), (4, 32)], 6788);
    far.probe.structure = None;
    far.probe.structure_error = Some("it runs in worker processes".into());
    let mut silent = outcome(None, &[(4, 32)], 3456);
    silent.probe = ProbeResult {
        error: Some(ProbeError {
            kind: "out_of_memory".into(),
            message: "CUDA out of memory".into(),
        }),
        ..ProbeResult::default()
    };
    silent.log = None;
    silent.host = None;
    let r = report([silent, far], THRESHOLDS);
    assert_eq!(
        (r.arms[1].counted_from.as_deref(), r.arms[1].num_cuda_graphs),
        (Some("log"), Some(64))
    );
    assert_eq!(
        (r.arms[0].num_cuda_graphs, r.analysis.additional_cuda_graphs),
        (None, None)
    );
    assert_eq!(r.unknown["arms[0].num_cuda_graphs"], "CUDA out of memory");
    assert_eq!(codes(&r), ["structure_unread"]);
    insta::assert_snapshot!(terminal_page(
        &plimsoll::report::graphs::graphs_report(&r),
        plain(false, 72)
    ));
}

#[test]
fn a_stand_in_is_called_one() {
    let mut arm = outcome(None, &[(4, 32)], 1);
    arm.probe.tensorrt_llm = Some("1.2.0-stand-in".into());
    let r = report([arm.clone(), arm], THRESHOLDS);
    assert!(r.simulated && codes(&r).contains(&"simulated_engine"));
    assert!(
        terminal_page(
            &plimsoll::report::graphs::graphs_report(&r),
            plain(true, 80)
        )
        .contains("SIMULATED")
    );
}
