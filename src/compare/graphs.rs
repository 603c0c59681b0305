//! What CUDA graphs cost, read against two thresholds.

use super::Comparison;
use crate::units::signed_text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes in a MiB.
pub const MIB: f64 = 1024.0 * 1024.0;

/// Below the first an overhead is low, above the second it is a strong case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Thresholds {
    /// MiB.
    pub low_mib: f64,
    /// MiB.
    pub strong_mib: f64,
}

/// How large an overhead is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// Below the lower threshold.
    Low,
    /// Between the two.
    Moderate,
    /// Above the upper threshold.
    Strong,
}

impl Thresholds {
    /// Reads an overhead.
    pub fn classify_overhead(&self, bytes: f64) -> Reading {
        match bytes / MIB {
            m if m < self.low_mib => Reading::Low,
            m if m > self.strong_mib => Reading::Strong,
            _ => Reading::Moderate,
        }
    }

    /// The reading as a sentence.
    pub fn describe_reading(&self, reading: Reading) -> String {
        let (low, strong) = (self.low_mib, self.strong_mib);
        match reading {
            Reading::Low => format!("low (below {low} MiB): saving them may not be worth it"),
            Reading::Moderate => format!("moderate (between {low} and {strong} MiB)"),
            Reading::Strong => format!("strong case for saving them (above {strong} MiB)"),
        }
    }
}

/// What CUDA graphs cost, where the second arm has them and the first has not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphReading {
    /// Their memory, bytes; null where it is unknown.
    pub overhead_bytes: Option<f64>,
    /// Where the figure comes from, or why there is none.
    pub witness: String,
    /// What it was read against.
    pub thresholds: Thresholds,
    /// How large that is; null where the memory is unknown.
    pub reading: Option<Reading>,
}

impl GraphReading {
    /// By the engine's own figure. The difference of the totals means nothing where an engine fills
    /// the device whatever the settings: its pool shrinks by what the graphs take.
    pub fn reading_of_comparison(comparison: &Comparison, thresholds: Thresholds) -> GraphReading {
        let mut rows = comparison.components.iter();
        let row = rows.find(|r| r.key == "cuda_graphs");
        // The first arm captures none, and reports nothing of them.
        let overhead = row.and_then(|r| r.difference.or(r.b.median));
        let witness = match (overhead, comparison.total.difference) {
            (Some(_), _) => "the engine's own figure for its CUDA graphs".to_owned(),
            (None, Some(d)) => format!(
                "the engine reported no memory of CUDA graphs; the totals of the arms differ by {}",
                signed_text(d as i128)
            ),
            (None, None) => {
                "the engine reported no memory of CUDA graphs, and one arm has no total".into()
            }
        };
        GraphReading {
            overhead_bytes: overhead,
            witness,
            thresholds,
            reading: overhead.map(|o| thresholds.classify_overhead(o)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_read_as_flags_say() {
        let t = Thresholds {
            low_mib: 500.0,
            strong_mib: 2048.0,
        };
        for (mib, reading) in [
            (-3.0, Reading::Low),
            (499.9, Reading::Low),
            (500.0, Reading::Moderate),
            (2048.0, Reading::Moderate),
            (2048.1, Reading::Strong),
        ] {
            assert_eq!(t.classify_overhead(mib * MIB), reading, "{mib}");
        }
        let other = Thresholds {
            low_mib: 1.0,
            strong_mib: 2.0,
        };
        assert_eq!(other.classify_overhead(3.0 * MIB), Reading::Strong);
        assert!(
            other
                .describe_reading(Reading::Strong)
                .contains("above 2 MiB")
        );
    }
}
