//! Charts: what they show, as values; drawn by this folder as SVG, and as PNG from that.
//!
//! Values are in the unit that the axis names. What is unknown is left out of a chart, and the
//! chart's note names it; it is never drawn as zero.

mod bars;
mod curves;
pub mod envelope;
pub mod front;
pub mod gauge;
mod heat;
mod lanes;
mod legend;
mod lettering;
pub mod palette;
mod pen;
pub mod png;
mod scale;
pub mod svg;

use super::content::SourceId;
use super::layout::distinct_items;
use crate::breakdown::Component;
pub use lanes::limit_words;
pub(super) use lettering::escape_text;
use scale::{finite_value, range_of};

/// A picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Word for links and file names, unique in the report: `fig1_mem_vs_concurrency`.
    pub id: String,
    /// Title.
    pub title: String,
    /// A sentence under it: what was left out, and why.
    pub note: Option<String>,
    /// Set where an engine or a device is simulated: shown in the picture itself.
    pub simulated: bool,
    /// What it shows.
    pub plot: Plot,
}

/// What a chart shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Plot {
    /// Stacked bars, one above the other.
    Bars(Bars),
    /// Lines, or points only, over a number.
    Curves(Curves),
    /// A figure for each pair of two settings.
    Heat(Heat),
    /// Memory over time; a page lets a reader look into it.
    Timeline(ChartTimeline),
}

/// One direction of a chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChartAxis {
    /// Words: `requests in flight`.
    pub title: String,
    /// Unit, behind the words and behind values: `GiB`. Empty for a count.
    pub unit: String,
    /// How values are laid out.
    pub scale: Scale,
}

/// How values are laid out along an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    #[default]
    FromZero,
    /// Evenly, from the lowest to the highest.
    Linear,
    /// By powers of two; values must be above zero.
    Log2,
}

impl Chart {
    /// A chart under its id and title.
    pub fn new_chart(
        id: impl Into<String>,
        title: impl Into<String>,
        note: Option<String>,
        simulated: bool,
        plot: Plot,
    ) -> Chart {
        Chart {
            id: id.into(),
            title: title.into(),
            note,
            simulated,
            plot,
        }
    }
}

impl ChartAxis {
    /// An axis by its words, unit and scale.
    pub fn new_axis(title: impl Into<String>, unit: impl Into<String>, scale: Scale) -> ChartAxis {
        ChartAxis {
            title: title.into(),
            unit: unit.into(),
            scale,
        }
    }

    /// An axis across these curves, by powers of two where their points are far apart.
    pub fn axis_across(title: impl Into<String>, curves: &[Curve]) -> ChartAxis {
        let places = curves.iter().flat_map(|c| &c.points).map(|p| p.x);
        let scale = match range_of(places) {
            Some((lowest, highest)) if lowest > 0.0 && highest / lowest >= 8.0 => Scale::Log2,
            _ => Scale::FromZero,
        };
        ChartAxis::new_axis(title, "", scale)
    }
}

impl Curve {
    /// Points under a label.
    pub fn new_curve(label: impl Into<String>, points: Vec<Dot>, joined: bool) -> Curve {
        Curve {
            label: label.into(),
            points,
            joined,
        }
    }
}

impl Dot {
    /// A point, with its words.
    pub fn new_dot(x: f64, y: f64, label: Option<String>) -> Dot {
        Dot {
            x,
            y,
            range: None,
            label,
        }
    }
}

/// Stacked bars.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bars {
    /// What their length is.
    pub axis: ChartAxis,
    /// The kinds of segments, in their order in a bar and in the legend.
    pub parts: Vec<BarPart>,
    /// The bars, from above.
    pub bars: Vec<Bar>,
}

/// A kind of segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BarPart {
    /// Words in the legend.
    pub label: String,
    /// Decides the colour; a part without one has the colour of its place in [`Bars::parts`].
    pub component: Option<Component>,
}

impl Bars {
    /// Whether it shows the way from one sum to another.
    pub fn is_waterfall(&self) -> bool {
        self.bars.iter().any(Bar::is_change)
    }
}

impl Bar {
    /// Whether it is a step of a waterfall.
    pub fn is_change(&self) -> bool {
        self.start != 0.0
    }

    /// Where its segments end.
    pub fn end(&self) -> f64 {
        let values = self.segments.iter().map(|s| s.value);
        self.start + values.filter(|v| v.is_finite()).sum::<f64>()
    }
}

impl BarPart {
    /// A component under the name that people read.
    pub fn part_of_component(component: Component) -> BarPart {
        BarPart {
            label: component.display_label().to_owned(),
            component: Some(component),
        }
    }

    /// A part that is not a component.
    pub fn plain_part(label: &str) -> BarPart {
        BarPart {
            label: label.to_owned(),
            component: None,
        }
    }
}

/// A bar.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bar {
    /// Words before it: `GPU 0`.
    pub label: String,
    /// Its segments. One below zero is drawn to the left of zero.
    pub segments: Vec<Segment>,
    /// A line across it, as the device's capacity, with its words.
    pub limit: Option<(f64, String)>,
    /// Where its segments begin. Beyond zero it is a step of a waterfall: a change, shown with its sign and joined to
    /// the bars beside it.
    pub start: f64,
}

/// A piece of a bar.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Segment {
    /// Which of [`Bars::parts`].
    pub part: usize,
    /// Its length.
    pub value: f64,
    /// How sure, in a word.
    pub confidence: Option<String>,
    /// Whether the legend names its part as one of low confidence.
    pub unsure: bool,
    /// Where it comes from.
    pub source: Option<SourceId>,
}

/// Lines over a number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curves {
    /// Across.
    pub x: ChartAxis,
    /// Up.
    pub y: ChartAxis,
    /// The lines.
    pub curves: Vec<Curve>,
    /// Lines right across at a height, with their words: a capacity, a limit.
    pub levels: Vec<(f64, String)>,
    /// Values across that have names, as versions have; empty: the values are named themselves.
    pub x_names: Vec<(f64, String)>,
    /// The Pareto front, from [`front::pareto_front`]: ringed and joined by a wide line. Where there is one, points
    /// of joined curves have their words beside them, too.
    pub front: Vec<(f64, f64)>,
}

/// A line, or points.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// Words in the legend.
    pub label: String,
    /// Its points.
    pub points: Vec<Dot>,
    /// Whether the points are joined.
    pub joined: bool,
}

/// A point.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dot {
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Lowest and highest, drawn as a whisker.
    pub range: Option<(f64, f64)>,
    /// More of its tooltip: the name of a run.
    pub label: Option<String>,
}

/// A figure for each pair of two settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heat {
    /// Words for what is across, and its values as words.
    pub x: (String, Vec<String>),
    /// Words for what is up, and its values as words, from above.
    pub y: (String, Vec<String>),
    /// What the figures are.
    pub figure: ChartAxis,
    /// Row by row, from above.
    pub squares: Vec<Vec<Square>>,
    /// Whether high figures are the bad ones: memory, latency.
    pub high_is_bad: bool,
}

/// A square of a heat map.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Square {
    /// The figure; `None`: there is none.
    pub value: Option<f64>,
    /// Its content: the figure in short, or why there is none (`oom`, `skipped`); empty where
    /// it was never asked for.
    pub text: String,
}

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
        let has_size = |layer: &&MemoryLayer| {
            let mut stretches = self.stretches.iter();
            stretches.any(|s| layer.size_at(s.to_s) > 0.0)
        };
        let mut shown = distinct_items(self.layers.iter().filter(has_size).map(|l| l.component));
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

impl Stretch {
    /// Whether its figures are numbers: a document from elsewhere may hold anything.
    pub fn is_known(&self) -> bool {
        let Stretch {
            from_s,
            to_s,
            low,
            high,
        } = self;
        [from_s, to_s, low, high].iter().all(|v| v.is_finite())
    }
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

#[cfg(test)]
mod tests;
