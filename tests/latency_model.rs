//! The latency model of the reference engine: its constants are those that fit stored load lines of a real vLLM.

use serde_json::Value;

const MODEL: &str = include_str!("../containers/reference-engine/src/latency.rs");
const LINE: &str = include_str!("fixtures/vllm/json/load-line.json");
const SERVED: [&str; 3] = [
    include_str!("fixtures/vllm/json/bench-serve.json"),
    include_str!("fixtures/vllm/json/bench-serve-eager.json"),
    include_str!("fixtures/vllm/json/bench-serve-final.json"),
];
/// Tokens per second by concurrent requests, of docs/EXPERIMENTS.md.
const PRINTED: [(f64, f64); 4] = [(1.0, 292.3), (2.0, 307.7), (4.0, 544.4), (8.0, 1053.7)];

/// The number behind a text of the model.
fn constant(before: &str) -> f64 {
    let at = MODEL.find(before).unwrap() + before.len();
    let text: String = MODEL[at..]
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    text.parse().unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_f64().unwrap())
        .collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Squares of the logarithms by which times differ from `1 + load / doubling`, whatever their unit.
fn misfit(line: &[(f64, f64)], doubling: f64) -> f64 {
    let apart = line
        .iter()
        .map(|(load, time)| time.ln() - (1.0 + load / doubling).ln());
    let apart: Vec<f64> = apart.collect();
    apart.iter().map(|x| (x - mean(&apart)).powi(2)).sum()
}

#[test]
fn its_constants_fit_stored_load_lines() {
    let document: Value = serde_json::from_str(LINE).unwrap();
    let levels = document["levels"].as_object().unwrap().iter();
    let stored: Vec<(f64, f64)> = levels
        .map(|(load, times)| (load.parse().unwrap(), median(numbers(times))))
        .collect();
    assert_eq!(stored.len(), 6);
    let printed = PRINTED.map(|(load, speed)| (load, load / speed));
    let fits = (10..400).map(|tenth| f64::from(tenth) / 10.0);
    let best = fits.min_by(|a, b| {
        let all = |doubling| misfit(&stored, doubling) + misfit(&printed, doubling);
        all(*a).total_cmp(&all(*b))
    });
    let doubling = constant("DOUBLING_LOAD: f64 = ");
    assert!(
        (best.unwrap() - doubling).abs() < 0.2,
        "{best:?}, and the model has {doubling}"
    );

    // Each request's whole time; of an even distribution the half width is the deviation times the root of 3.
    let spreads = SERVED.map(|text| {
        let run: Value = serde_json::from_str(text).unwrap();
        let gaps = run["itls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|gaps| numbers(gaps).iter().sum::<f64>());
        let times: Vec<f64> = numbers(&run["ttfts"])
            .iter()
            .zip(gaps)
            .map(|(a, b)| a + b)
            .collect();
        let deviation = times
            .iter()
            .map(|t| (t - mean(&times)).powi(2))
            .sum::<f64>()
            / times.len() as f64;
        deviation.sqrt() / mean(&times)
    });
    let noise = median(spreads.to_vec()) * 3.0_f64.sqrt();
    let of_model = constant("\"latency-noise\", Kind::Count, \"") / 1000.0;
    assert!(
        (noise - of_model).abs() < 0.005,
        "{noise} of {spreads:?}, and the model has {of_model}"
    );
}
