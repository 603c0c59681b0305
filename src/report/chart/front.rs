//! The Pareto front: the points that no other point beats on both axes.

use super::{Curve, Dot};

/// The points of all curves for which no other has as much across and as little up and is better in one of them, in
/// the order of the axis across.
pub fn pareto_front(curves: &[Curve]) -> Vec<(f64, f64)> {
    let dots = curves.iter().flat_map(|c| &c.points);
    let mut points: Vec<(f64, f64)> = dots
        .map(|d| (d.x, d.y))
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .collect();
    // From the most across, the least up first: a point is on the front where it is lower than all before it.
    points.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.total_cmp(&b.1)));
    let mut lowest = f64::INFINITY;
    points.retain(|(_, y)| {
        let on_front = *y < lowest;
        lowest = lowest.min(*y);
        on_front
    });
    points.reverse();
    points
}

/// Whether a point is on it.
pub fn is_on_front(front: &[(f64, f64)], dot: &Dot) -> bool {
    front.contains(&(dot.x, dot.y))
}

/// What the front means and which points of which curve are on it; `None` where it is empty.
pub fn describe_front(curves: &[Curve], front: &[(f64, f64)]) -> Option<String> {
    let of_curve = |curve: &Curve| {
        let dots = curve.points.iter().filter(|d| is_on_front(front, d));
        let names: Vec<&str> = dots
            .map(|d| d.label.as_deref().unwrap_or("1 point"))
            .collect();
        (!names.is_empty()).then(|| {
            if curves.len() > 1 {
                format!("{}: {}", curve.label, names.join(", "))
            } else {
                names.join(", ")
            }
        })
    };
    let names: Vec<String> = curves.iter().filter_map(of_curve).collect();
    (!names.is_empty()).then(|| {
        format!(
            "On the Pareto front (no other point has higher throughput at the same or lower latency): {}.",
            names.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn curve(points: &[(f64, f64)]) -> Curve {
        let dot = |(x, y): &(f64, f64)| Dot {
            x: *x,
            y: *y,
            label: Some(format!("batch {x}")),
            ..Dot::default()
        };
        Curve {
            label: "tp 1".into(),
            points: points.iter().map(dot).collect(),
            joined: true,
        }
    }

    #[test]
    fn a_point_with_less_throughput_and_more_latency_is_not_on_the_front() {
        let all = [curve(&[(1.0, 5.0), (2.0, 7.0), (3.0, 6.0), (3.0, 8.0)])];
        let front = pareto_front(&all);
        assert_eq!(front, [(1.0, 5.0), (3.0, 6.0)]);
        let words = describe_front(&all, &front).unwrap();
        assert!(words.ends_with("batch 1, batch 3."), "{words}");
        assert_eq!(describe_front(&[], &[]), None);
    }

    proptest! {
        #[test]
        fn every_point_is_on_the_front_or_beaten(
            points in prop::collection::vec((0..20u8, 0..20u8), 0..40),
        ) {
            let points: Vec<(f64, f64)> =
                points.into_iter().map(|(x, y)| (x.into(), y.into())).collect();
            let front = pareto_front(&[curve(&points)]);
            for p in &points {
                let beaten = points.iter().any(|q| q.0 >= p.0 && q.1 <= p.1 && q != p);
                prop_assert_eq!(front.contains(p), !beaten);
            }
            prop_assert!(front.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
        }
    }
}
