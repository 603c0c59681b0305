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
mod timeline;

use super::content::SourceId;
use crate::breakdown::Component;
pub use lanes::limit_words;
pub(super) use lettering::escape_text;
pub use timeline::{
    ChartTimeline, MemoryLayer, Stretch, TimelineEvent, TimelineLane, TimelinePhase,
};

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
        let all = || curves.iter().flat_map(|c| &c.points).map(|p| p.x);
        let lowest = all().fold(f64::INFINITY, f64::min);
        let highest = all().fold(f64::NEG_INFINITY, f64::max);
        let is_wide = lowest > 0.0 && highest / lowest >= 8.0;
        let scale = if is_wide {
            Scale::Log2
        } else {
            Scale::FromZero
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

#[cfg(test)]
mod tests;
