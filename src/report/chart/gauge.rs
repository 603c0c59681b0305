//! The gauge of an answer: what is in use of a device, by component, and what is free.

use super::palette::{Ink, paint_for};
use super::svg::ChartStyle;
use crate::profile::MemoryGauge;
use std::fmt::Write as _;

/// Units across; the page stretches them to its width.
const ACROSS: f64 = 1000.0;

/// The bar without words: they stand in the page beneath it. Drawn for use within a page.
pub fn gauge_svg(gauge: &MemoryGauge) -> String {
    let whole = gauge.total_bytes.max(gauge.used_bytes).max(1) as f64;
    let width = |bytes: u64| bytes as f64 / whole * ACROSS;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {ACROSS} 24\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
         <rect width=\"{ACROSS}\" height=\"24\" fill=\"{}\"/>",
        paint_for(Ink::Band, ChartStyle::Inline)
    );
    let mut rect = |from: f64, width: f64, ink: Ink, title: &str| {
        let paint = paint_for(ink, ChartStyle::Inline);
        // A gap in the colour of the ground keeps neighbours apart.
        let _ = write!(
            svg,
            "<rect x=\"{from:.2}\" width=\"{:.2}\" height=\"24\" fill=\"{paint}\"><title>{title}</title></rect>",
            (width - 1.5).max(0.5)
        );
    };
    let mut at = 0.0;
    for (component, bytes) in &gauge.parts {
        // Parts of a peak of which a part is below zero are together more than the peak.
        let room = width(gauge.used_bytes) - at;
        let wide = width(*bytes).min(room.max(0.0));
        rect(at, wide, Ink::Part(*component), component.display_label());
        at += wide;
    }
    if gauge.parts.is_empty() {
        rect(0.0, width(gauge.used_bytes), Ink::Muted, "in use");
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breakdown::Component;
    use std::collections::BTreeMap;

    #[test]
    fn parts_are_never_wider_than_what_is_in_use() {
        let gauge = MemoryGauge {
            label: "GPU 0".into(),
            used_bytes: 50,
            total_bytes: 100,
            parts: [(Component::ModelWeights, 40), (Component::KvCache, 30)].into(),
        };
        let svg = gauge_svg(&gauge);
        assert!(svg.contains("x=\"400.00\" width=\"98.50\""), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 3);
        let over = MemoryGauge {
            used_bytes: 200,
            parts: BTreeMap::new(),
            ..gauge
        };
        assert!(gauge_svg(&over).contains("width=\"998.50\""));
    }
}
