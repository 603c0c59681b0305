//! Charts of a load line: what the check of a round measured, against the limits that it was checked for.

use super::MOST;
use crate::loadline::observe::RoundObservation;
use crate::loadline::verdict::concurrency_reached;
use crate::report::chapters::document::{flag_at, list_at, number_at, text_at};
use crate::report::chart::front::{describe_front, pareto_front};
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use crate::report::layout::{capitalize_first, counted_words};
use serde_json::Value;

/// What is across in all charts but the first.
const ACROSS: &str = "requests in flight";

/// Metrics of objectives: their key, their key in a round's result, and words.
const METRICS: [(&str, &str, &str); 4] = [
    ("ttft", "ttft_ms", "time to first token"),
    ("itl", "itl_ms", "time between tokens"),
    ("tpot", "tpot_ms", "time per further token"),
    ("e2e", "e2el_ms", "latency"),
];

/// A figure of a round.
struct RoundCurve {
    id: String,
    title: String,
    unit: &'static str,
    /// The objective's limit, with its words.
    limit: Option<(f64, String)>,
    /// Where it is in a round; the first that is there counts.
    paths: Vec<String>,
    /// What its value there is divided by.
    per: f64,
}

impl RoundCurve {
    fn value_in_round(&self, round: &Value) -> Option<f64> {
        let found = self.paths.iter().find_map(|p| number_at(round, p))?;
        Some(found / self.per)
    }
}

/// The charts of a document.
pub(super) fn load_line_charts(document: &Value, rounds: &[&Value], id: &str) -> Vec<Chart> {
    let sheet = LoadLineCharts {
        document,
        rounds,
        id,
    };
    let mut latencies = latency_curves(document);
    latencies.retain(|l| rounds.iter().any(|r| l.value_in_round(r).is_some()));
    if latencies.is_empty() {
        latencies.push(at_path(
            "mean_latency_ms",
            "mean latency",
            "ms",
            "/seen/result/mean_latency_ms",
            1.0,
        ));
    }
    // Each objective has its chart; without any, the first latency that is known.
    let limited = latencies.iter().filter(|l| l.limit.is_some()).count();
    let mut charts: Vec<Option<Chart>> = latencies
        .iter()
        .filter(|l| l.limit.is_some() || limited == 0)
        .take(limited.max(1))
        .map(|latency| sheet.pareto(latency))
        .collect();
    charts.extend(latencies.iter().map(|latency| sheet.over_load(latency)));
    charts.push(sheet.queueing());
    let others = [
        at_path(
            "queue_mean_s",
            "mean waiting in the queue",
            "s",
            "/seen/queue_mean_s",
            1.0,
        ),
        at_path(
            "kv_used_percent",
            "KV pool used at most",
            "%",
            "/seen/kv_usage_most",
            0.01,
        ),
    ];
    charts.extend(others.iter().map(|figure| sheet.over_load(figure)));
    charts.into_iter().flatten().collect()
}

/// The objectives, and the 95th percentiles of TTFT and ITL where they are not among them.
fn latency_curves(document: &Value) -> Vec<RoundCurve> {
    let mut all: Vec<RoundCurve> = Vec::new();
    let objectives = list_at(document, "/objectives", MOST).map(|o| {
        let word = |path: &str| text_at(o, path).unwrap_or_default();
        (
            word("/metric"),
            word("/statistic"),
            number_at(o, "/limit_ms"),
        )
    });
    let usual = ["ttft", "itl"].map(|metric| (metric.to_owned(), "p95".to_owned(), None));
    for (metric, statistic, limit) in objectives.chain(usual) {
        let known = METRICS.iter().find(|m| m.0 == metric);
        let Some((_, key, words)) =
            known.filter(|_| crate::loadline::objective::STATISTICS.contains(&statistic.as_str()))
        else {
            continue;
        };
        let id = format!("{metric}_{statistic}_ms");
        // Of a metric with an objective the usual percentile is no further fact.
        let again = |l: &RoundCurve| {
            l.id == id || (limit.is_none() && l.id.starts_with(&format!("{metric}_")))
        };
        if all.iter().any(again) {
            continue;
        }
        let name = if statistic == "p50" {
            "median"
        } else {
            &statistic
        };
        let paths = [name, &statistic].map(|s| format!("/seen/result/{key}/{s}"));
        all.push(RoundCurve {
            id,
            title: format!("{words}, {statistic}"),
            unit: "ms",
            limit: limit.map(|ms| (ms, format!("limit of {metric} {statistic}: {ms} ms"))),
            paths: paths.into(),
            per: 1.0,
        });
    }
    all
}

fn at_path(id: &str, title: &str, unit: &'static str, path: &str, per: f64) -> RoundCurve {
    RoundCurve {
        id: id.into(),
        title: title.into(),
        unit,
        limit: None,
        paths: vec![path.into()],
        per,
    }
}

/// Requests of a round that ran at once, as its check counted them.
fn ran_at_once(round: &Value) -> Option<f64> {
    let seen = round.get("seen")?;
    let count = |path: &str| {
        number_at(seen, path)
            .filter(|n| *n >= 0.0)
            .map(|n| n as u64)
    };
    let observed = RoundObservation {
        together: count("/together"),
        running_most: count("/running_most"),
        readings: count("/readings").unwrap_or(0),
        generation_s: number_at(seen, "/generation_s"),
        ..RoundObservation::default()
    };
    let sent = number_at(round, "/concurrency").filter(|n| *n >= 0.0)?;
    Some(concurrency_reached(&observed, sent as u64)? as f64)
}

/// The rounds of one document.
struct LoadLineCharts<'a> {
    document: &'a Value,
    rounds: &'a [&'a Value],
    id: &'a str,
}

impl LoadLineCharts<'_> {
    /// The rounds that were sustained or not, in order of their load.
    fn points(&self, held: Option<bool>, dot: impl Fn(&Value) -> Option<Dot>) -> Vec<Dot> {
        let mut all: Vec<(f64, Dot)> = (self.rounds.iter())
            .filter(|r| held.is_none_or(|held| flag_at(r, "/held") == held))
            .filter_map(|r| Some((number_at(r, "/concurrency")?, dot(r)?)))
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.into_iter().map(|p| p.1).collect()
    }

    fn chart(&self, id: &str, title: String, missing: usize, plot: Curves) -> Chart {
        let front = describe_front(&plot.curves, &plot.front);
        let missing = (missing > 0).then(|| {
            let rounds = counted_words(missing, "round is", "rounds are");
            format!("{rounds} not drawn, for lack of this figure.")
        });
        let notes: Vec<String> = [front, missing].into_iter().flatten().collect();
        Chart {
            id: format!("{}_{id}", self.id),
            title,
            note: (!notes.is_empty()).then(|| notes.join(" ")),
            simulated: flag_at(self.document, "/simulated"),
            plot: Plot::Curves(plot),
        }
    }

    /// Throughput against latency.
    fn pareto(&self, latency: &RoundCurve) -> Option<Chart> {
        let dot = |round: &Value| {
            Some(Dot {
                x: number_at(round, "/seen/result/output_tokens_per_second")?,
                y: latency.value_in_round(round)?,
                range: None,
                label: number_at(round, "/concurrency").map(|n| format!("{n:.0} in flight")),
            })
        };
        let curves = [("sustained", true), ("not sustained", false)];
        let curves = curves.map(|(label, held)| Curve {
            label: label.into(),
            points: self.points(Some(held), dot),
            joined: held,
        });
        let curves = drawn(curves.into());
        let count: usize = curves.iter().map(|c| c.points.len()).sum();
        if count < 2 {
            return None;
        }
        let plot = Curves {
            x: axis("throughput", "generated tokens/s"),
            y: axis(&latency.title, latency.unit),
            levels: latency.limit.clone().into_iter().collect(),
            front: pareto_front(&curves),
            curves,
            ..Curves::default()
        };
        let title = format!("Throughput against {}", latency.title);
        let id = format!("pareto_{}", latency.id);
        Some(self.chart(&id, title, self.rounds.len() - count, plot))
    }

    /// A figure over requests in flight, its limit, and the predicted load line.
    fn over_load(&self, figure: &RoundCurve) -> Option<Chart> {
        let dot = |round: &Value| {
            Some(Dot {
                x: number_at(round, "/concurrency")?,
                y: figure.value_in_round(round)?,
                range: None,
                label: number_at(round, "/number").map(|n| format!("round {n:.0}")),
            })
        };
        let (held, failed) = (self.points(Some(true), dot), self.points(Some(false), dot));
        let heights = held.iter().chain(&failed).map(|d| d.y);
        let heights = heights.chain(figure.limit.iter().map(|l| l.0));
        let missing = self.rounds.len() - held.len() - failed.len();
        if missing == self.rounds.len() {
            return None;
        }
        let highest = heights.fold(0.0, f64::max);
        let mut curves = vec![
            Curve::new_curve("sustained", held, true),
            Curve::new_curve("not sustained", failed, false),
        ];
        if let Some(x) = number_at(self.document, "/prediction/concurrency") {
            let ends = [0.0, highest].map(|y| Dot {
                x,
                y,
                ..Dot::default()
            });
            curves.push(Curve::new_curve("predicted load line", ends.to_vec(), true));
        }
        let plot = Curves {
            x: axis(ACROSS, ""),
            y: axis(&figure.title, figure.unit),
            curves: drawn(curves),
            levels: figure.limit.clone().into_iter().collect(),
            ..Curves::default()
        };
        let title = format!("{} over {ACROSS}", capitalize_first(&figure.title));
        Some(self.chart(&figure.id, title, missing, plot))
    }

    /// How many of the requests ran at once, and how many waited long: what the check for queueing counts.
    fn queueing(&self) -> Option<Chart> {
        let dot = |value: fn(&Value) -> Option<f64>| {
            move |round: &Value| {
                Some(Dot {
                    x: number_at(round, "/concurrency")?,
                    y: value(round)?,
                    range: None,
                    label: number_at(round, "/number").map(|n| format!("round {n:.0}")),
                })
            }
        };
        let at_once = self.points(None, dot(ran_at_once));
        let long = self.points(None, dot(|r| number_at(r, "/seen/queued_long")));
        if at_once.is_empty() && long.is_empty() {
            return None;
        }
        let missing = self.rounds.len() - at_once.len().max(long.len());
        let sent = self.points(None, dot(|r| number_at(r, "/concurrency")));
        let plot = Curves {
            x: axis(ACROSS, ""),
            y: axis("requests", ""),
            curves: drawn(vec![
                Curve::new_curve("sent at once", sent, true),
                Curve::new_curve("ran at once", at_once, true),
                Curve::new_curve("waited long in the queue", long, true),
            ]),
            ..Curves::default()
        };
        let title = format!("Queueing over {ACROSS}");
        Some(self.chart("queueing", title, missing, plot))
    }
}

fn drawn(mut curves: Vec<Curve>) -> Vec<Curve> {
    curves.retain(|c| !c.points.is_empty());
    curves
}

fn axis(title: &str, unit: &str) -> ChartAxis {
    ChartAxis::new_axis(title, unit, Scale::FromZero)
}
