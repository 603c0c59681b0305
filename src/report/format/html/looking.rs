//! A timeline as data for the page's script, which lets a reader look into it.
//!
//! Every stretch is four whole numbers: the moments in ticks of 0.1 ms and the values in the lane's
//! quantum, each as its difference from what was before it, in the variable-length form of LEB128
//! with the sign in the lowest bit. Differences are small, so that most numbers are one or two
//! bytes: 100,000 stretches are some 0.6 MB.

use crate::report::chart::{self, Chart, ChartTimeline, TimelineLane, palette};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Ticks of a second.
const TICKS: f64 = 10_000.0;

/// The data.
pub fn timeline_data(
    chart: &Chart,
    timeline: &ChartTimeline,
    text: impl Fn(&str) -> String,
) -> Value {
    let lanes: Vec<Value> = timeline.lanes.iter().map(|l| lane(l, &text)).collect();
    let phases = (timeline.phases.iter()).map(|p| json!([text(&p.label), p.from_s, p.to_s]));
    let events = (timeline.events.iter()).map(|e| json!([text(&e.label), e.at_s, e.bad]));
    json!({
        "range": [timeline.range_s.0, timeline.range_s.1],
        "origin": timeline.origin.as_deref().map(&text),
        "title": text(&chart.title),
        "note": chart.note.as_deref().map(&text),
        "simulated": chart.simulated,
        "tick": 1.0 / TICKS,
        "lanes": lanes,
        "phases": phases.collect::<Vec<_>>(),
        "events": events.collect::<Vec<_>>(),
    })
}

fn lane(lane: &TimelineLane, text: impl Fn(&str) -> String) -> Value {
    let known: Vec<_> = lane.stretches.iter().filter(|s| s.is_known()).collect();
    let largest = known.iter().map(|s| s.low.abs().max(s.high.abs()));
    let quantum = quantum(largest.fold(0.0, f64::max));
    let mut bytes = Vec::with_capacity(known.len() * 6);
    let (mut at, mut low) = (0, 0);
    for stretch in &known {
        let [from, to] = [stretch.from_s, stretch.to_s].map(|at| (at * TICKS).round() as i64);
        let [below, above] = [stretch.low, stretch.high].map(|v| (v / quantum).round() as i64);
        for difference in [from - at, to - from, below - low, above - below] {
            put_varint(difference, &mut bytes);
        }
        (at, low) = (to, below);
    }
    json!({
        "label": text(&lane.label),
        "unit": text(&lane.unit),
        "capacity": lane.capacity,
        "far": lane.limit_place().is_some_and(|l| l.1),
        "limit": chart::limit_words(lane, &text(&lane.unit)),
        "memory": lane.memory,
        "ink": lane.component.map(palette::part_class),
        "layers": lane.layers.iter().map(|layer| {
            // Moments beyond all samples have no number in JSON.
            let moment = |at: f64| at.clamp(-1e15, 1e15);
            json!([
                palette::part_class(layer.component),
                layer.component.display_label(),
                layer.value,
                moment(layer.from_s),
                moment(layer.to_s),
            ])
        }).collect::<Vec<_>>(),
        "legend": lane.shown_components().into_iter().map(|component| {
            json!([palette::part_class(component), component.display_label()])
        }).collect::<Vec<_>>(),
        "quantum": quantum,
        "count": known.len(),
        "data": STANDARD.encode(&bytes),
    })
}

/// A millionth, or more where a script could not count that many of them exactly (2^53).
fn quantum(largest: f64) -> f64 {
    let mut quantum = 1e-6;
    while largest / quantum > 1e15 {
        quantum *= 10.0;
    }
    quantum
}

fn put_varint(number: i64, bytes: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::chart::Stretch;

    fn read(lane: &Value) -> Vec<[f64; 4]> {
        let bytes = STANDARD.decode(lane["data"].as_str().unwrap()).unwrap();
        let quantum = lane["quantum"].as_f64().unwrap();
        let mut numbers = Vec::new();
        let (mut number, mut shift) = (0u64, 0);
        for byte in bytes {
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                numbers.push((number >> 1) as i64 ^ -((number & 1) as i64));
                (number, shift) = (0, 0);
            }
        }
        let (mut at, mut low) = (0, 0);
        let stretches = numbers.chunks(4).map(|n| {
            let (from, below) = (at + n[0], low + n[2]);
            (at, low) = (from + n[1], below);
            let (from, to) = (from as f64 / TICKS, at as f64 / TICKS);
            [
                from,
                to,
                low as f64 * quantum,
                (low + n[3]) as f64 * quantum,
            ]
        });
        stretches.collect()
    }

    proptest::proptest! {
        #[test]
        fn stretches_come_back_as_they_were(
            values in proptest::collection::vec(
                (-1e4..1e4f64, 0.0..100.0f64, -1e6..1e6f64, 0.0..1e3f64), 0..50),
        ) {
            let stretches = values.iter().map(|&(from_s, long, low, more)| Stretch {
                from_s,
                to_s: from_s + long,
                low,
                high: low + more,
            });
            let stretches: Vec<Stretch> = stretches.collect();
            let packed = lane(&TimelineLane { stretches: stretches.clone(), ..TimelineLane::default() }, str::to_owned);
            let back = read(&packed);
            proptest::prop_assert_eq!(back.len(), stretches.len());
            for (b, s) in back.iter().zip(&stretches) {
                for (is, was, near) in [
                    (b[0], s.from_s, 1e-4), (b[1], s.to_s, 1e-4), (b[2], s.low, 2e-6), (b[3], s.high, 2e-6),
                ] {
                    proptest::prop_assert!((is - was).abs() <= near, "{} {}", is, was);
                }
            }
        }
    }
}
