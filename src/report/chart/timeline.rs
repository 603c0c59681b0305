//! Memory over time as a chart: a lane for each device, phases behind them, events above.

/// Memory over time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChartTimeline {
    /// Word for links and file names, unique in the report.
    pub id: String,
    /// Title.
    pub title: String,
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
