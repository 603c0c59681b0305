//! Charts of a load line: what the check of a round measured, against the limits that it was checked for.

use crate::loadline::objective::STATISTICS;
use crate::loadline::verdict::concurrency_reached;
use crate::loadline::{Loadline, LoadlineRound, Metric, Objective};
use crate::report::chart::front::{describe_front, pareto_front};
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use crate::report::layout::{capitalize_first, counted_words, join_sentences};

/// What is across in all charts but the first.
const ACROSS: &str = "requests in flight";

/// A figure of a round.
type RoundValue = Box<dyn Fn(&LoadlineRound) -> Option<f64>>;

/// A figure of a round as a curve.
struct RoundCurve {
    id: String,
    title: String,
    unit: &'static str,
    /// The objective's limit, with its words.
    limit: Option<(f64, String)>,
    value: RoundValue,
}

impl RoundCurve {
    fn new(
        id: impl Into<String>,
        title: impl Into<String>,
        unit: &'static str,
        value: impl Fn(&LoadlineRound) -> Option<f64> + 'static,
    ) -> RoundCurve {
        RoundCurve {
            id: id.into(),
            title: title.into(),
            unit,
            limit: None,
            value: Box::new(move |r| value(r).filter(|v| v.is_finite())),
        }
    }
}

/// The charts of a document.
pub(super) fn load_line_charts(line: &Loadline, id: &str) -> Vec<Chart> {
    let sheet = LoadLineCharts { line, id };
    let mut latencies = latency_curves(line);
    latencies.retain(|l| line.rounds.iter().any(|r| (l.value)(r).is_some()));
    if latencies.is_empty() {
        let mean = |r: &LoadlineRound| r.seen.result.mean_latency_ms;
        let curve = RoundCurve::new("mean_latency_ms", "mean latency", "ms", mean);
        latencies.push(curve);
    }
    // Each objective has its chart; without any, the first latency that is known.
    let limited = latencies.iter().filter(|l| l.limit.is_some());
    let first = usize::from(limited.clone().next().is_none());
    let shown = limited.chain(latencies.iter().take(first));
    let mut charts: Vec<Option<Chart>> = shown.map(|latency| sheet.pareto(latency)).collect();
    charts.extend(latencies.iter().map(|latency| sheet.over_load(latency)));
    charts.push(sheet.queueing());
    let waiting = RoundCurve::new("queue_mean_s", "mean waiting in the queue", "s", |r| {
        r.seen.queue_mean_s
    });
    let pool = RoundCurve::new("kv_used_percent", "KV pool used at most", "%", |r| {
        Some(r.seen.kv_usage_most? * 100.0)
    });
    charts.extend([waiting, pool].iter().map(|figure| sheet.over_load(figure)));
    charts.into_iter().flatten().collect()
}

/// The objectives, and the 95th percentiles of TTFT and ITL where no objective is of the metric.
fn latency_curves(line: &Loadline) -> Vec<RoundCurve> {
    let asked = (line.objectives.0.iter()).filter(|o| STATISTICS.contains(&o.statistic.as_str()));
    let curve = |o: &Objective| {
        let (name, of) = (o.metric.as_str(), o.clone());
        let id = format!("{name}_{}_ms", o.statistic);
        let title = format!("{}, {}", o.metric.display_label(), o.statistic);
        RoundCurve::new(id, title, "ms", move |r| of.measured_figure(&r.seen.result))
    };
    let mut all: Vec<RoundCurve> = Vec::new();
    for o in asked.clone() {
        let (name, ms) = (o.metric.as_str(), o.limit_ms);
        let limit = Some((ms, format!("limit of {name} {}: {ms} ms", o.statistic)));
        let curve = RoundCurve { limit, ..curve(o) };
        if all.iter().all(|other| other.id != curve.id) {
            all.push(curve);
        }
    }
    for metric in [Metric::Ttft, Metric::Itl] {
        if asked.clone().all(|o| o.metric != metric) {
            all.push(curve(&Objective {
                metric,
                statistic: "p95".into(),
                limit_ms: 0.0,
            }));
        }
    }
    all
}

/// The rounds of one document.
struct LoadLineCharts<'a> {
    line: &'a Loadline,
    id: &'a str,
}

impl LoadLineCharts<'_> {
    /// The rounds that were sustained or not, in order of their load.
    fn points(&self, held: Option<bool>, dot: impl Fn(&LoadlineRound) -> Option<Dot>) -> Vec<Dot> {
        let mut all: Vec<(u32, Dot)> = (self.line.rounds.iter())
            .filter(|r| held.is_none_or(|held| r.held == held))
            .filter_map(|r| Some((r.concurrency, dot(r)?)))
            .collect();
        all.sort_by_key(|(concurrency, _)| *concurrency);
        all.into_iter().map(|p| p.1).collect()
    }

    fn chart(&self, id: &str, title: String, missing: usize, plot: Curves) -> Chart {
        let front = describe_front(&plot.curves, &plot.front);
        let missing = (missing > 0).then(|| {
            let rounds = counted_words(missing, "round is", "rounds are");
            format!("{rounds} not drawn, for lack of this figure.")
        });
        let note = join_sentences(front.into_iter().chain(missing));
        let id = format!("{}_{id}", self.id);
        Chart::new_chart(id, title, note, self.line.simulated, Plot::Curves(plot))
    }

    /// The rounds that were sustained and those that were not, and how many points both have.
    fn held_and_failed(&self, dot: impl Fn(&LoadlineRound) -> Option<Dot>) -> (Vec<Curve>, usize) {
        let curve = |(label, held)| Curve::new_curve(label, self.points(Some(held), &dot), held);
        let curves = [("sustained", true), ("not sustained", false)].map(curve);
        let curves = drawn(curves.into());
        let count = curves.iter().map(|c| c.points.len()).sum();
        (curves, count)
    }

    /// Throughput against latency.
    fn pareto(&self, latency: &RoundCurve) -> Option<Chart> {
        let dot = |round: &LoadlineRound| {
            let x = round.seen.result.output_tokens_per_second?;
            let label = format!("{} in flight", round.concurrency);
            Some(Dot::new_dot(x, (latency.value)(round)?, Some(label)))
        };
        let (curves, count) = self.held_and_failed(dot);
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
        Some(self.chart(&id, title, self.line.rounds.len() - count, plot))
    }

    /// A figure over requests in flight, its limit, and the predicted load line.
    fn over_load(&self, figure: &RoundCurve) -> Option<Chart> {
        let (mut curves, count) = self.held_and_failed(|r| round_dot(r, (figure.value)(r)));
        if count == 0 {
            return None;
        }
        let heights = curves.iter().flat_map(|c| &c.points).map(|d| d.y);
        let heights = heights.chain(figure.limit.iter().map(|l| l.0));
        let highest = heights.fold(0.0, f64::max);
        if let Some(x) = self.line.prediction.concurrency {
            let ends = [0.0, highest].map(|y| Dot::new_dot(x as f64, y, None));
            curves.push(Curve::new_curve("predicted load line", ends.to_vec(), true));
        }
        let plot = Curves {
            x: axis(ACROSS, ""),
            y: axis(&figure.title, figure.unit),
            curves,
            levels: figure.limit.clone().into_iter().collect(),
            ..Curves::default()
        };
        let title = format!("{} over {ACROSS}", capitalize_first(&figure.title));
        Some(self.chart(&figure.id, title, self.line.rounds.len() - count, plot))
    }

    /// How many of the requests ran at once, and how many waited long: what the check for queueing counts.
    fn queueing(&self) -> Option<Chart> {
        let points = |value: fn(&LoadlineRound) -> Option<f64>| {
            self.points(None, |r| round_dot(r, value(r)))
        };
        let at_once =
            points(|r| concurrency_reached(&r.seen, r.concurrency.into()).map(|n| n as f64));
        let long = points(|r| r.seen.queued_long.map(|n| n as f64));
        if at_once.is_empty() && long.is_empty() {
            return None;
        }
        let missing = self.line.rounds.len() - at_once.len().max(long.len());
        let sent = points(|r| Some(r.concurrency.into()));
        let plot = Curves {
            x: axis(ACROSS, ""),
            y: axis("requests", ""),
            curves: drawn(vec![
                Curve::new_curve("sent concurrently", sent, true),
                Curve::new_curve("ran concurrently", at_once, true),
                Curve::new_curve("waited long in the queue", long, true),
            ]),
            ..Curves::default()
        };
        let title = format!("Queueing over {ACROSS}");
        Some(self.chart("queueing", title, missing, plot))
    }
}

/// A point over the requests in flight of a round.
fn round_dot(round: &LoadlineRound, y: Option<f64>) -> Option<Dot> {
    let label = format!("round {}", round.number);
    Some(Dot::new_dot(round.concurrency.into(), y?, Some(label)))
}

fn drawn(mut curves: Vec<Curve>) -> Vec<Curve> {
    curves.retain(|c| !c.points.is_empty());
    curves
}

fn axis(title: &str, unit: &str) -> ChartAxis {
    ChartAxis::new_axis(title, unit, Scale::FromZero)
}
