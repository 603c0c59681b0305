//! Result files: real ones, those of older releases, garbage.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../tests/fixtures/vllm/json/", $name))
    };
}

#[test]
fn real_latency() {
    let r = read(BenchKind::Latency, fixture!("bench-latency-eager.json")).unwrap();
    assert_eq!(r.mean_latency_ms, Some(0.530923103999885 * 1e3));
    assert_eq!(r.latency_percentiles_ms["p90"], 0.5693923295998502 * 1e3);
    assert_eq!(
        r.latency_percentiles_ms["median"],
        r.latency_percentiles_ms["p50"]
    );
    assert_eq!(r.latencies_ms.len(), 5);
    assert!((r.duration_s.unwrap() - 2.654615519999425).abs() < 1e-9);
    assert_eq!((r.completed, r.output_tokens_per_second), (None, None));
}

#[test]
fn real_throughput() {
    let r = read(
        BenchKind::Throughput,
        fixture!("bench-throughput-eager.json"),
    )
    .unwrap();
    assert_eq!(
        (r.duration_s, r.completed),
        (Some(5.19872939600009), Some(40))
    );
    assert_eq!(
        (r.requests_per_second, r.total_tokens_per_second),
        (Some(7.6941877434082375), Some(738.6420233671907))
    );
    assert_eq!(r.mean_latency_ms, None);
}

#[test]
fn real_serve() {
    let r = read(BenchKind::Serve, fixture!("bench-serve.json")).unwrap();
    assert_eq!((r.completed, r.failed), (Some(40), Some(0)));
    assert_eq!(
        (r.total_input_tokens, r.total_output_tokens),
        (Some(2561), Some(1280))
    );
    assert_eq!(r.ttft_ms["p99"], 573.0352980502039);
    assert_eq!(r.tpot_ms["mean"], 16.61043623870969);
    assert_eq!(r.itl_ms["std"], 26.290240164161762);
    assert_eq!(r.mean_latency_ms, Some(962.5410959000078));
    assert_eq!(
        r.latency_percentiles_ms.keys().collect::<Vec<_>>(),
        ["median", "p50", "p90", "p99"]
    );
    assert_eq!(r.latencies_ms.len(), 40);
    assert_eq!(r.total_tokens_per_second, Some(796.4739485752287));
    for other in [
        fixture!("bench-serve-eager.json"),
        fixture!("bench-serve-final.json"),
    ] {
        assert_eq!(read(BenchKind::Serve, other).unwrap().completed, Some(40));
    }
}

#[test]
fn serve_of_older_releases() {
    // 0.4: halves of the throughput, neither itl nor e2el.
    let r = read(
        BenchKind::Serve,
        r#"{"date":"20240501-000000","backend":"vllm","num_prompts":10,"request_rate":"inf","duration":2.0,"completed":9,
            "total_input_tokens":100,"total_output_tokens":50,"request_throughput":4.5,"input_throughput":50.0,
            "output_throughput":25.0,"mean_ttft_ms":12.5,"median_ttft_ms":12.0,"p99_ttft_ms":20.0,"mean_tpot_ms":5.0}"#,
    )
    .unwrap();
    assert_eq!((r.failed, r.total_tokens_per_second), (Some(1), Some(75.0)));
    assert_eq!((r.ttft_ms["p99"], r.mean_latency_ms), (20.0, None));
    // 0.6 to 0.8: the goodput key with a colon in it.
    let r = read(BenchKind::Serve, r#"{"duration":1,"completed":1,"request_goodput:":null,"p99.9_e2el_ms":7,"mean_e2el_ms":3}"#).unwrap();
    assert_eq!((r.e2el_ms["p99.9"], r.mean_latency_ms), (7.0, Some(3.0)));
}

#[test]
fn nothing_completed_is_nothing_measured() {
    let r = read(
        BenchKind::Serve,
        r#"{"duration":1.5,"completed":0,"failed":4,"mean_ttft_ms":0.0,"mean_e2el_ms":0.0}"#,
    )
    .unwrap();
    assert_eq!(
        (r.completed, r.failed, r.mean_latency_ms),
        (Some(0), Some(4), None)
    );
    assert!(r.ttft_ms.is_empty());
}

#[test]
fn words_that_are_no_json() {
    let r = read(
        BenchKind::Serve,
        r#"{"duration": 1.0, "completed": 3, "mean_ttft_ms": NaN, "std_ttft_ms": -Infinity, "p99_ttft_ms": Infinity,
            "median_ttft_ms": 2, "label": "NaN \" Infinity \ud83d", "generated_texts": ["\ud83d\ude00", "\\ud83d", "é\\"]}"#,
    )
    .unwrap();
    assert_eq!(r.ttft_ms, BTreeMap::from([("median".to_owned(), 2.0)]));
    assert_eq!(
        read(BenchKind::Latency, r#"{"avg_latency": NaN}"#).unwrap(),
        BenchResult::default()
    );
}

#[test]
fn garbage_is_refused() {
    for text in [
        "",
        "nonsense",
        "{\"avg_latency\": 1.0",
        "NaN",
        "[1]",
        "null",
        "\"x\"",
    ] {
        for kind in [BenchKind::Latency, BenchKind::Throughput, BenchKind::Serve] {
            assert!(
                matches!(read(kind, text), Err(ReadError::Json(_))),
                "{text}"
            );
        }
    }
    for (kind, text, missing) in [
        (BenchKind::Latency, "{}", "avg_latency"),
        (
            BenchKind::Latency,
            r#"{"avg_latency": "fast"}"#,
            "avg_latency",
        ),
        (
            BenchKind::Throughput,
            r#"{"num_requests": 4}"#,
            "elapsed_time",
        ),
        (
            BenchKind::Throughput,
            r#"{"elapsed_time": 4}"#,
            "num_requests",
        ),
        (BenchKind::Serve, r#"{"completed": 4}"#, "duration"),
        (BenchKind::Serve, r#"{"duration": 4}"#, "completed"),
        (
            BenchKind::Serve,
            fixture!("bench-latency-eager.json"),
            "duration",
        ),
    ] {
        assert_eq!(read(kind, text), Err(ReadError::Missing(missing)), "{text}");
    }
    let r = read(BenchKind::Latency, r#"{"avg_latency": -1, "latencies": [1, "x", null, -2], "percentiles": {"x": 1, "50": "y"}}"#).unwrap();
    assert_eq!(
        (
            r.mean_latency_ms,
            r.latencies_ms,
            r.latency_percentiles_ms.len()
        ),
        (None, vec![1000.0], 0)
    );
}

proptest! {
    #[test]
    fn never_panics(text in "\\PC{0,60}|[{}\\[\\]\":,\\\\a-fuNIé0-9 .-]{0,60}|\\{\"duration\": ?(NaN|1|\"\\\\\\PC{0,5}), \"completed\": ?[0-9a-z]{0,3}\\}") {
        for kind in [BenchKind::Latency, BenchKind::Throughput, BenchKind::Serve] {
            let _ = read(kind, &text);
        }
    }

    #[test]
    fn json_is_kept_as_it_is(text in "[a-z \"\\\\u]{0,12}") {
        let json = serde_json::to_string(&serde_json::json!({"k NaN": text, "\\ud": "Infinity"})).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&plain_json(&json)).unwrap(), serde_json::from_str::<Value>(&json).unwrap());
    }
}
