//! Limits on latency that a load must keep: `ttft=500ms,itl.p99=50ms`.

use crate::engine::BenchResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use strum::IntoStaticStr;

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Metric {
    /// Time to first token.
    Ttft,
    /// Time between two tokens.
    Itl,
    /// Time per output token after the first, of a request.
    Tpot,
    /// The whole request.
    E2e,
}

crate::wording::as_written!(Metric);

impl Metric {
    const ALL: [Metric; 4] = [Metric::Ttft, Metric::Itl, Metric::Tpot, Metric::E2e];

    /// As people read it.
    pub fn display_label(self) -> &'static str {
        match self {
            Metric::Ttft => "time to first token",
            Metric::Itl => "time between tokens",
            Metric::Tpot => "time per output token (TPOT)",
            Metric::E2e => "latency",
        }
    }

    fn figures_of_metric(self, result: &BenchResult) -> &BTreeMap<String, f64> {
        match self {
            Metric::Ttft => &result.ttft_ms,
            Metric::Itl => &result.itl_ms,
            Metric::Tpot => &result.tpot_ms,
            Metric::E2e => &result.e2el_ms,
        }
    }
}

/// The statistics that the client gives.
pub const STATISTICS: [&str; 5] = ["p50", "p90", "p95", "p99", "mean"];

/// One limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Objective {
    /// What is limited.
    pub metric: Metric,
    /// Which of its figures: `p50`, `p90`, `p95`, `p99`, `mean`.
    pub statistic: String,
    /// At most, milliseconds.
    pub limit_ms: f64,
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Objective {
            metric, statistic, ..
        } = self;
        write!(
            f,
            "{} {statistic} at most {} ms",
            metric.as_str(),
            self.limit_ms
        )
    }
}

impl Objective {
    /// The figure of a round, milliseconds; `None` where it has none.
    pub fn measured_figure(&self, result: &BenchResult) -> Option<f64> {
        let name = match self.statistic.as_str() {
            "p50" => "median",
            other => other,
        };
        let figures = self.metric.figures_of_metric(result);
        figures.get(name).or(figures.get(&self.statistic)).copied()
    }
}

/// All limits of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Objectives(pub Vec<Objective>);

impl Objectives {
    /// Reads `ttft=500ms,itl.p99=50ms`. `percentile` is that of a limit that names none.
    ///
    /// # Errors
    /// A sentence on the first invalid part.
    pub fn parse_objectives(texts: &[String], percentile: u32) -> Result<Objectives, String> {
        let mut all: Vec<Objective> = Vec::new();
        for part in texts.iter().flat_map(|t| t.split(',')).map(str::trim) {
            if part.is_empty() {
                return Err("a limit is empty".into());
            }
            let objective = parse_objective(part, percentile)?;
            let twin = |o: &Objective| {
                (o.metric, &o.statistic) == (objective.metric, &objective.statistic)
            };
            if all.iter().any(twin) {
                let name = objective.metric.as_str();
                return Err(format!(
                    "{name} {} has two limits; give one",
                    objective.statistic
                ));
            }
            all.push(objective);
        }
        Ok(Objectives(all))
    }
}

fn parse_objective(part: &str, percentile: u32) -> Result<Objective, String> {
    let (name, time) = part
        .split_once('=')
        .ok_or_else(|| format!("invalid limit `{part}`: write it as ttft=500ms"))?;
    let name = name.trim().to_ascii_lowercase();
    let (metric, statistic) = match name.split_once('.') {
        Some((metric, statistic)) => (metric, statistic.to_owned()),
        None => (name.as_str(), format!("p{percentile}")),
    };
    let metric = match metric {
        "e2el" | "latency" => Metric::E2e,
        word => *Metric::ALL
            .iter()
            .find(|m| m.as_str() == word)
            .ok_or_else(|| format!("invalid latency `{word}`: one of ttft, itl, tpot, e2e"))?,
    };
    if !STATISTICS.contains(&statistic.as_str()) {
        return Err(format!(
            "`{statistic}` is not a measured statistic; known are {}",
            STATISTICS.join(", ")
        ));
    }
    Ok(Objective {
        metric,
        statistic,
        limit_ms: milliseconds(time.trim())?,
    })
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let at = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit.trim() {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        "" => {
            return Err(format!(
                "`{text}` has no unit: write it as {text}ms or {text}s"
            ));
        }
        other => return Err(format!("invalid unit of time `{other}`: one of us, ms, s")),
    };
    match number.parse::<f64>() {
        Ok(v) if v > 0.0 && v.is_finite() && v * factor <= 86_400e3 => Ok(v * factor),
        _ => Err(format!(
            "invalid time `{text}`: more than 0 and at most a day"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_objectives(text: &str) -> Result<Objectives, String> {
        Objectives::parse_objectives(&[text.to_owned()], 95)
    }

    #[test]
    fn limits_are_read_as_people_write_them() {
        let read = parse_objectives("ttft=500ms, itl.p99=0.05s,e2e.mean=2s")
            .unwrap()
            .0;
        let written: Vec<String> = read.iter().map(Objective::to_string).collect();
        assert_eq!(
            written,
            [
                "ttft p95 at most 500 ms",
                "itl p99 at most 50 ms",
                "e2e mean at most 2000 ms"
            ]
        );
        assert_eq!(
            Objectives::parse_objectives(&[], 95),
            Ok(Objectives::default())
        );
    }

    #[test]
    fn nonsense_is_refused_with_what_would_be_right() {
        for (text, word) in [
            ("ttft", "ttft=500ms"),
            ("ttft=500", "no unit"),
            ("ttft=-5ms", "invalid unit of time"),
            ("ttft=0ms", "more than 0"),
            ("ttft=1.2.3ms", "more than 0"),
            ("ttft=5min", "us, ms, s"),
            ("speed=5ms", "one of ttft"),
            ("itl.p42=5ms", "p50, p90"),
            ("itl=5ms,itl.p95=6ms", "two limits"),
            ("itl=5ms,,", "empty"),
            ("", "empty"),
        ] {
            let message = parse_objectives(text).unwrap_err();
            assert!(message.contains(word), "{text}: {message}");
        }
    }

    #[test]
    fn a_figure_is_found_by_its_statistic() {
        let figures = [("median", 1.0), ("p95", 2.0), ("mean", 3.0)];
        let result = BenchResult {
            itl_ms: figures.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            ..BenchResult::default()
        };
        let figure = |text: &str| parse_objectives(text).unwrap().0[0].measured_figure(&result);
        assert_eq!(
            [
                figure("itl.p50=1s"),
                figure("itl=1s"),
                figure("itl.mean=1s"),
                figure("itl.p99=1s")
            ],
            [Some(1.0), Some(2.0), Some(3.0), None]
        );
        assert_eq!(figure("ttft=1s"), None);
    }
}
