//! Levels for tests, as an engine with a pool would leave them.

use super::{Experiment, ExperimentKind, LevelRun, LevelState, RequestedLoad};
use crate::capture::{
    Capture, DeviceFacts, DeviceKind, ErrorKind, Request, RequestError, RequestRow, ShortPrompts,
};
use crate::profile::{Profile, derive_profile};

/// A request that was answered: moments in milliseconds.
pub(crate) fn answered_request(
    number: u64,
    begin_ms: i64,
    first_ms: i64,
    last_ms: i64,
    tokens: u64,
) -> RequestRow {
    let ns = |ms: i64| ms * 1_000_000;
    RequestRow {
        repeat: 1,
        number,
        intended_at_ns: ns(begin_ms),
        sent_at_ns: Some(ns(begin_ms)),
        first_at_ns: Some(ns(first_ms)),
        last_at_ns: Some(ns(last_ms)),
        ended_at_ns: ns(last_ms),
        input_asked: 128,
        input_tokens: Some(128),
        output_asked: 64,
        output_tokens: Some(tokens),
        events: tokens,
        status: Some(200),
        ..RequestRow::default()
    }
}

/// One that was not.
pub(crate) fn refused_request(number: u64, kind: ErrorKind) -> RequestRow {
    RequestRow {
        last_at_ns: None,
        first_at_ns: None,
        input_tokens: None,
        output_tokens: None,
        error: Some(RequestError {
            kind,
            message: "=HYPERLINK(\"http://x\")".into(),
        }),
        ..answered_request(number, 0, 0, 5, 0)
    }
}

/// A profile: its peak, the engine's pool, and what was used of it.
pub(crate) fn sample_profile(peak: u64, pool: Option<u64>, used: Option<u64>) -> Box<Profile> {
    let capture = Capture {
        engine: "vllm".into(),
        request: Request {
            model: Some("org/tiny".into()),
            bench: "builtin".into(),
            ..Request::default()
        },
        devices: vec![DeviceFacts {
            kind: DeviceKind::Gpu,
            name: "A GPU of 80 GiB".into(),
            ..DeviceFacts::default()
        }],
        ..Capture::default()
    };
    let mut profile = derive_profile(&capture, [], []);
    let gib = |bytes: u64| crate::units::to_gib(bytes);
    profile.memory_breakdown.total_measured_bytes = Some(peak);
    profile.metadata.memory_backend.name = "nvml".into();
    profile.vllm_internal_metrics.total_gpu_kv_cache_gb = pool.map(gib);
    profile.vllm_internal_metrics.kv_cache_used_gb = used.map(gib);
    Box::new(profile)
}

/// A level of that many concurrent requests, each of which took as many times 100 ms.
pub(crate) fn sample_level(at_once: u32, peak: u64, used: Option<u64>) -> LevelRun {
    let took = 100 * i64::from(at_once);
    let rows = (0..4 * i64::from(at_once)).map(|n| {
        let begin = took * (n / i64::from(at_once));
        answered_request(n as u64, begin, begin + took / 10, begin + took, 10)
    });
    LevelRun {
        name: at_once.to_string(),
        asked: sample_load(at_once, 128),
        state: LevelState::Done,
        why: None,
        profile: Some(sample_profile(peak, Some(8 << 30), used)),
        profile_path: Some(format!("cells/{at_once}.json")),
        requests: rows.collect(),
        wall_start_ns: 1_763_800_000_000_000_000,
    }
}

/// A level that was not measured.
pub(crate) fn level_without_profile(
    at_once: u32,
    state: LevelState,
    cause: &str,
    message: &str,
) -> LevelRun {
    LevelRun {
        state,
        why: Some((cause.into(), message.into())),
        profile: None,
        profile_path: None,
        requests: Vec::new(),
        ..sample_level(at_once, 0, None)
    }
}

/// A load.
pub(crate) fn sample_load(concurrency: u32, prompt_tokens: u32) -> RequestedLoad {
    RequestedLoad {
        concurrency,
        prompt_tokens,
        short_prompts: None,
        output_tokens: 64,
        requests: 4 * concurrency,
        repeats: 1,
    }
}

/// Short prompts, both, long prompts.
pub(crate) fn mixed_levels() -> Vec<LevelRun> {
    let of = |name: &str, short_prompts, prompt_tokens, lengths: &[u32]| LevelRun {
        name: name.into(),
        asked: RequestedLoad {
            short_prompts,
            ..sample_load(4, prompt_tokens)
        },
        requests: lengths
            .iter()
            .enumerate()
            .map(|(n, tokens)| RequestRow {
                input_asked: *tokens,
                input_tokens: Some((*tokens).into()),
                ..answered_request(n as u64, 0, 20, 100 + i64::from(*tokens), 10)
            })
            .collect(),
        ..sample_level(4, 20 << 30, Some(1 << 20))
    };
    let short = ShortPrompts {
        input_len: 64,
        share: 0.5,
    };
    vec![
        of("long", None, 256, &[256; 4]),
        of("mixed", Some(short), 256, &[64, 256, 64, 64]),
        of("short", None, 64, &[64; 4]),
    ]
}

/// What is known beside the levels.
pub(crate) fn sample_head(kind: ExperimentKind) -> Experiment {
    Experiment {
        kind,
        timestamp: "2026-11-22T10:00:00Z".into(),
        took_s: 12.5,
        interrupted: false,
        model: "org/tiny".into(),
        container: Some("llm".into()),
        image: None,
        bench: "builtin".into(),
        ..Experiment::default()
    }
}
