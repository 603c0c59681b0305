//! Statistics of the rows, with the keys and definitions of `vllm bench serve`.

use crate::capture::{ErrorKind, LengthUnit, RequestRow, TokenSource};
use crate::profile::stats::{arithmetic_mean, population_stddev, quantile_of_sorted};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Which percentiles are given.
const PERCENTILES: [u32; 4] = [50, 90, 95, 99];

/// The result of one run as JSON. `notes` are sentences about the figures. Rows cut off by the end
/// of the run are only counted.
pub fn result_document(rows: &[RequestRow], notes: &[String]) -> Value {
    let whole: Vec<&RequestRow> = rows.iter().filter(|r| r.is_ok()).collect();
    let failed = rows.iter().filter(|r| r.has_failed()).count();
    let duration = duration_s(rows);
    let sum = |pick: fn(&RequestRow) -> Option<u64>| -> u64 {
        whole
            .iter()
            .filter_map(|r| pick(r))
            .fold(0, u64::saturating_add)
    };
    // One response without a count makes every sum unknown.
    let known = |pick: fn(&RequestRow) -> Option<u64>| -> Option<u64> {
        (!whole.is_empty() && whole.iter().all(|r| pick(r).is_some())).then(|| sum(pick))
    };
    let input = known(|r| r.input_tokens.or(r.input_counted));
    let output = known(|r| r.output_tokens);
    let rate = |n: Option<u64>| Some(n? as f64 / duration.filter(|s| *s > 0.0)?);
    let mut result = json!({
        "client": "plimsoll",
        "num_prompts": rows.len(),
        "duration": duration,
        "completed": whole.len(),
        "failed": failed,
        "cancelled": rows.len() - whole.len() - failed,
        "total_input_tokens": input,
        "total_output_tokens": output,
        "request_throughput": rate(Some(whole.len() as u64)),
        "output_throughput": rate(output),
        "total_token_throughput": rate(input.zip(output).map(|(i, o)| i.saturating_add(o))),
        "errors": errors(rows),
        "notes": notes,
    });
    let figures: [(&str, Vec<f64>); 4] = [
        ("ttft", whole.iter().filter_map(|r| r.ttft_ms()).collect()),
        ("tpot", whole.iter().filter_map(|r| r.tpot_ms()).collect()),
        (
            "itl",
            whole
                .iter()
                .flat_map(|r| r.gaps_us.iter())
                .map(|us| *us as f64 / 1e3)
                .collect(),
        ),
        ("e2el", whole.iter().map(|r| r.e2e_ms()).collect()),
    ];
    if let Value::Object(object) = &mut result {
        for (name, figures) in figures {
            spread(object, name, figures);
        }
    }
    result
}

/// From the first scheduled time to the end of the last request that was not cut off, seconds.
fn duration_s(rows: &[RequestRow]) -> Option<f64> {
    let mut counted = rows
        .iter()
        .filter(|r| r.is_ok() || r.has_failed())
        .peekable();
    counted.peek()?;
    let begin = rows.iter().map(|r| r.intended_at_ns).min()?;
    let end = counted.map(|r| r.ended_at_ns).max()?;
    Some((end - begin) as f64 / 1e9)
}

fn spread(into: &mut Map<String, Value>, name: &str, mut figures: Vec<f64>) {
    figures.sort_by(f64::total_cmp);
    let mut put = |statistic: &str, value: Option<f64>| {
        if let Some(value) = value {
            into.insert(format!("{statistic}_{name}_ms"), value.into());
        }
    };
    put("mean", arithmetic_mean(&figures));
    put("median", quantile_of_sorted(&figures, 0.5));
    put("std", population_stddev(&figures));
    for p in PERCENTILES {
        put(
            &format!("p{p}"),
            quantile_of_sorted(&figures, f64::from(p) / 100.0),
        );
    }
}

/// Number of errors of each kind.
fn errors(rows: &[RequestRow]) -> BTreeMap<ErrorKind, u64> {
    let mut kinds = BTreeMap::new();
    for error in rows.iter().filter_map(|r| r.error.as_ref()) {
        *kinds.entry(error.kind).or_insert(0) += 1;
    }
    kinds
}

/// Notes to report with the figures of these rows.
pub fn result_notes(rows: &[RequestRow]) -> Vec<String> {
    let whole: Vec<&RequestRow> = rows.iter().filter(|r| r.is_ok()).collect();
    let count = |pick: fn(&RequestRow) -> bool| whole.iter().filter(|r| pick(r)).count();
    let of = whole.len();
    let mut notes = Vec::new();
    let mut note = |n: usize, text: String| {
        if n > 0 {
            notes.push(text);
        }
    };
    let words = count(|r| r.input_unit == LengthUnit::Words);
    note(
        words,
        "prompt lengths are in words, not tokens: the server has no tokenizer endpoint".into(),
    );
    let off = count(|r| {
        let counted = r.input_tokens.or(r.input_counted);
        r.input_unit == LengthUnit::Tokens && counted.is_some_and(|n| n != u64::from(r.input_asked))
    });
    note(
        off,
        format!("{off} of {of} prompts do not have exactly the tokens asked for"),
    );
    let by_events = count(|r| r.output_source == Some(TokenSource::Events));
    note(
        by_events,
        format!(
            "the server reports no usage for {by_events} of {of} answers: their tokens are counted by events"
        ),
    );
    let silent = count(|r| r.output_tokens == Some(0) || r.events == 0);
    note(
        silent,
        format!("{silent} of {of} answers carried no content: they have no time to first token"),
    );
    let other = count(|r| {
        r.output_tokens
            .is_some_and(|n| n != u64::from(r.output_asked))
    });
    note(
        other,
        format!("{other} of {of} answers do not have as many tokens as were asked for"),
    );
    // The first and the last event may have no text.
    let joined = count(|r| r.output_tokens.is_some_and(|n| n > r.events + 2));
    note(
        joined,
        format!(
            "{joined} of {of} answers came with fewer events than tokens: inter-token latency is that of events"
        ),
    );
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::RequestError;
    use crate::engine::read_builtin;
    use proptest::prelude::*;

    fn row(number: u64, begin: i64, wait: i64, gaps: &[u64]) -> RequestRow {
        let first = begin + wait;
        let last = first + gaps.iter().sum::<u64>() as i64 * 1000;
        RequestRow {
            number,
            intended_at_ns: begin,
            sent_at_ns: Some(begin),
            first_at_ns: Some(first),
            last_at_ns: Some(last),
            ended_at_ns: last,
            input_asked: 10,
            input_tokens: Some(10),
            output_asked: gaps.len() as u32 + 1,
            output_tokens: Some(gaps.len() as u64 + 1),
            output_source: Some(TokenSource::Usage),
            events: gaps.len() as u64 + 1,
            gaps_us: gaps.to_vec(),
            ..RequestRow::default()
        }
    }

    fn rows() -> impl Strategy<Value = Vec<RequestRow>> {
        let one = (
            0..10_000_000_000i64,
            1..1_000_000_000i64,
            proptest::collection::vec(0..1_000_000u64, 0..20),
            proptest::option::weighted(
                0.2,
                proptest::sample::select(vec![ErrorKind::Cut, ErrorKind::Cancelled]),
            ),
        );
        proptest::collection::vec(one, 0..40).prop_map(|all| {
            let rows = all.into_iter().enumerate();
            rows.map(|(i, (begin, wait, gaps, error))| RequestRow {
                error: error.map(|kind| RequestError {
                    kind,
                    message: String::new(),
                }),
                ..row(i as u64, begin, wait, &gaps)
            })
            .collect()
        })
    }

    proptest! {
        #[test]
        fn figures_lie_between_the_extremes_and_sums_add_up(rows in rows()) {
            let document = result_document(&rows, &[]);
            let result = read_builtin(&document.to_string()).unwrap();
            let whole: Vec<_> = rows.iter().filter(|r| r.is_ok()).collect();
            prop_assert_eq!(result.completed, Some(whole.len() as u64));
            prop_assert_eq!(result.failed, Some(rows.iter().filter(|r| r.has_failed()).count() as u64));
            let counts: u64 = ["completed", "failed", "cancelled"].iter().map(|k| document[k].as_u64().unwrap()).sum();
            prop_assert_eq!(counts, rows.len() as u64);
            if whole.is_empty() {
                prop_assert!(result.ttft_ms.is_empty() && result.output_tokens_per_second.is_none());
                return Ok(());
            }
            let tokens: u64 = whole.iter().map(|r| r.output_tokens.unwrap()).sum();
            prop_assert_eq!(result.total_output_tokens, Some(tokens));
            let seconds = result.duration_s.unwrap();
            prop_assert!((result.output_tokens_per_second.unwrap() * seconds - tokens as f64).abs() < 1e-6 * tokens as f64 + 1e-6);
            let groups: [(&BTreeMap<String, f64>, Vec<f64>); 2] = [
                (&result.ttft_ms, whole.iter().filter_map(|r| r.ttft_ms()).collect()),
                (&result.e2el_ms, whole.iter().map(|r| r.e2e_ms()).collect()),
            ];
            for (given, figures) in groups {
                let low = figures.iter().copied().fold(f64::INFINITY, f64::min);
                let high = figures.iter().copied().fold(0.0, f64::max);
                for (name, value) in given.iter().filter(|(n, _)| *n != "std") {
                    prop_assert!(*value >= low - 1e-9 && *value <= high + 1e-9, "{} {}", name, value);
                }
                prop_assert!(given["p50"] <= given["p90"] && given["p90"] <= given["p99"]);
                prop_assert_eq!(given["p50"], given["median"]);
            }
            // What a request took in all is not less than its first token and its gaps.
            for r in &whole {
                let gaps = r.gaps_us.iter().sum::<u64>() as f64 / 1e3;
                prop_assert!((r.e2e_ms() - r.ttft_ms().unwrap() - gaps).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn one_run() {
        let rows = [
            row(0, 0, 100_000_000, &[50_000, 50_000]),
            row(1, 500_000_000, 300_000_000, &[100_000, 100_000]),
        ];
        let d = result_document(&rows, &["a note".into()]);
        assert_eq!(
            (d["duration"].as_f64(), d["output_throughput"].as_f64()),
            (Some(1.0), Some(6.0))
        );
        assert_eq!(
            (d["mean_ttft_ms"].as_f64(), d["median_itl_ms"].as_f64()),
            (Some(200.0), Some(75.0))
        );
        assert_eq!(
            (d["mean_tpot_ms"].as_f64(), d["p50_e2el_ms"].as_f64()),
            (Some(75.0), Some(350.0))
        );
        assert_eq!(d["total_token_throughput"].as_f64(), Some(26.0));
        assert_eq!(d["notes"][0], "a note");
        assert_eq!(result_notes(&rows), [""; 0]);
    }

    #[test]
    fn what_differs_from_the_request_is_noted() {
        let rows = [
            RequestRow {
                input_unit: LengthUnit::Words,
                ..row(0, 0, 1, &[1])
            },
            RequestRow {
                input_tokens: Some(11),
                output_source: Some(TokenSource::Events),
                ..row(1, 0, 1, &[1])
            },
            RequestRow {
                output_tokens: Some(9),
                ..row(2, 0, 1, &[1])
            },
        ];
        let notes = result_notes(&rows).join("\n");
        for part in [
            "in words, not tokens",
            "1 of 3 prompts",
            "counted by events",
            "as many tokens",
            "that of events",
        ] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
        // An uncounted figure is unknown, not zero.
        let unknown = [RequestRow {
            input_tokens: None,
            ..row(0, 0, 1, &[1])
        }];
        assert!(result_document(&unknown, &[])["total_input_tokens"].is_null());
    }
}
