//! Memory over time as a chart: a lane for each device, phases behind them, events above.

use super::scale::finite_value;
use super::{Chart, Plot};
use crate::breakdown::Component;

/// A limit beyond this many times the highest sample would flatten the lane; it is named at its top.
const FAR_LIMIT: f64 = 3.0;

/// A rest smaller than this share of the highest sample is not worth a colour.
const VISIBLE_REST: f64 = 0.005;

/// Memory over time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChartTimeline {
    /// A sentence under it: how it was thinned, what is missing.
    pub note: Option<String>,
    /// Set where an engine or a device is simulated.
    pub simulated: bool,
    /// Wall time of second 0, RFC 3339.
    pub origin: Option<String>,
    /// First and last moment, seconds; before zero where the start of the engine was shared.
    pub range_s: (f64, f64),
    /// What is drawn: a line with its own height each.
    pub lanes: Vec<TimelineLane>,
    /// Stretches of time with a name, behind the lanes.
    pub phases: Vec<TimelinePhase>,
    /// Moments with a name.
    pub events: Vec<TimelineEvent>,
}

impl ChartTimeline {
    /// The picture of it.
    pub fn timeline_chart(&self, id: impl Into<String>, title: impl Into<String>) -> Chart {
        let plot = Plot::Timeline(self.clone());
        Chart::new_chart(id, title, self.note.clone(), self.simulated, plot)
    }
}

/// One line of a timeline.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimelineLane {
    /// Words: `GPU 0 memory`.
    pub label: String,
    /// Unit of the values: `GiB`, `%`, `W`.
    pub unit: String,
    /// The values in order of time.
    pub stretches: Vec<Stretch>,
    /// What the device has, in the unit; drawn as a line.
    pub capacity: Option<f64>,
    /// How many samples it was made of.
    pub samples: u64,
    /// Whether it is the memory of a device: drawn tall, with its line over the layers.
    pub memory: bool,
    /// Decides the colour; a lane without one is neutral.
    pub component: Option<Component>,
    /// What is known to be within its height, from below; empty where no moment is known.
    pub layers: Vec<MemoryLayer>,
}

/// A component of a known size, between the moments at which it is in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryLayer {
    /// Which.
    pub component: Component,
    /// Its size, in the unit of the lane.
    pub value: f64,
    /// The moment at which its phase begins, seconds.
    pub from_s: f64,
    /// The moment at which it is gone, seconds; infinite where it stays.
    pub to_s: f64,
}

impl MemoryLayer {
    /// Its size at a moment.
    pub fn size_at(&self, at_s: f64) -> f64 {
        if (self.from_s..self.to_s).contains(&at_s) {
            self.value
        } else {
            0.0
        }
    }
}

impl TimelineLane {
    /// The limit, and whether it is too far above the samples for a line.
    pub fn limit_place(&self) -> Option<(f64, bool)> {
        let limit = self.capacity.and_then(finite_value)?;
        let highs = self.stretches.iter().filter_map(|s| finite_value(s.high));
        let highest = highs.fold(0.0, f64::max);
        Some((limit, highest > 0.0 && limit > highest * FAR_LIMIT))
    }

    /// The components that its area shows, from below; the last is what no layer explains.
    pub fn shown_components(&self) -> Vec<Component> {
        let highs = self.stretches.iter().filter_map(|s| finite_value(s.high));
        let highest = highs.fold(0.0, f64::max);
        let rest = |s: &Stretch| {
            let known: f64 = self.layers.iter().map(|l| l.size_at(s.from_s)).sum();
            s.high - known > highest * VISIBLE_REST
        };
        let mut shown: Vec<Component> = Vec::new();
        for layer in &self.layers {
            let has_size = |s: &Stretch| layer.size_at(s.to_s) > 0.0;
            if !shown.contains(&layer.component) && self.stretches.iter().any(has_size) {
                shown.push(layer.component);
            }
        }
        if !self.layers.is_empty() && self.stretches.iter().any(rest) {
            shown.push(Component::Unexplained);
        }
        shown
    }
}

/// What was seen between two moments. A single sample begins and ends at one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stretch {
    /// Moment of its first sample, seconds.
    pub from_s: f64,
    /// Moment of its last sample, seconds.
    pub to_s: f64,
    /// The lowest that was seen.
    pub low: f64,
    /// The highest that was seen.
    pub high: f64,
}

/// A stretch of time with a name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimelinePhase {
    /// Its name: `load`.
    pub label: String,
    /// Seconds.
    pub from_s: f64,
    /// Seconds.
    pub to_s: f64,
}

/// A moment with a name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimelineEvent {
    /// Seconds.
    pub at_s: f64,
    /// What happened, in some words.
    pub label: String,
    /// Whether it is bad: out of memory, died.
    pub bad: bool,
}
