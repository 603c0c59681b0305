//! Any chart is a picture; a few are looked at letter by letter.

use super::svg::{ChartStyle, WIDTH, chart_svg};
use super::*;
use proptest::prelude::*;
use resvg::usvg::roxmltree::{Document, Node};

/// A picture that was read back.
fn read(svg: &str) -> Document<'_> {
    match Document::parse(svg) {
        Ok(document) => document,
        Err(e) => panic!("{e}\n{}", svg.chars().take(2000).collect::<String>()),
    }
}

/// Every number of a path's absolute steps, with whether it is a height.
fn coordinates(d: &str) -> Vec<(f64, bool)> {
    let mut all = Vec::new();
    let mut steps: Vec<(char, &str)> = Vec::new();
    let starts: Vec<usize> = d
        .char_indices()
        .filter(|(_, c)| c.is_ascii_alphabetic())
        .map(|(i, _)| i)
        .collect();
    for (n, start) in starts.iter().enumerate() {
        let end = starts.get(n + 1).copied().unwrap_or(d.len());
        let step = d[*start..].chars().next().expect("a step");
        steps.push((step, &d[start + 1..end]));
    }
    for (step, numbers) in steps {
        let numbers: Vec<f64> = numbers
            .split_whitespace()
            .map(|n| n.parse().unwrap_or_else(|_| panic!("`{n}` in {d}")))
            .collect();
        assert!(numbers.iter().all(|n| n.is_finite()), "{d}");
        match step {
            'M' | 'L' => all.extend([(numbers[0], false), (numbers[1], true)]),
            'V' => all.push((numbers[0], true)),
            'H' => all.push((numbers[0], false)),
            _ => {}
        }
    }
    all
}

/// Well-formed, and all of it within its own view box.
fn is_a_picture(svg: &str) {
    let document = read(svg);
    let root = document.root_element();
    let number = |node: &Node<'_, '_>, name: &str| -> f64 {
        let value = node.attribute(name).unwrap_or("0");
        value.parse().unwrap_or_else(|_| panic!("{name}={value}"))
    };
    let (width, height) = (number(&root, "width"), number(&root, "height"));
    assert_eq!(width, WIDTH);
    assert!(height > 40.0 && height < 20_000.0, "{height}");
    let within = |x: f64, y: f64| {
        let inside = (-0.2..=width + 0.2).contains(&x) && (-0.2..=height + 0.2).contains(&y);
        assert!(inside, "{x} {y} is outside {width} {height}");
    };
    for node in document.descendants().filter(Node::is_element) {
        let apart = |n: Node<'_, '_>| n.has_tag_name("defs") || n.has_attribute("transform");
        if node.ancestors().any(apart) {
            continue;
        }
        match node.tag_name().name() {
            "rect" => {
                let (x, y) = (number(&node, "x"), number(&node, "y"));
                within(x, y);
                within(x + number(&node, "width"), y + number(&node, "height"));
            }
            "text" => {
                let own = node.children().filter(Node::is_text);
                let words: String = own.filter_map(|n| n.text()).collect();
                let wide = lettering::text_width(&words, number(&node, "font-size"));
                let start = match node.attribute("text-anchor") {
                    None => number(&node, "x"),
                    Some("middle") => number(&node, "x") - wide / 2.0,
                    Some(_) => number(&node, "x") - wide,
                };
                within(start, number(&node, "y"));
                within(start + wide, number(&node, "y"));
            }
            "path" => {
                for (at, up) in coordinates(node.attribute("d").unwrap_or_default()) {
                    if up { within(0.0, at) } else { within(at, 0.0) }
                }
            }
            "script" | "foreignObject" | "image" | "a" | "style" => panic!("{:?}", node.tag_name()),
            _ => {}
        }
    }
}

fn text_of(svg: &str) -> String {
    let document = read(svg);
    let shown = document.descendants().filter(|n| n.has_tag_name("text"));
    shown
        .flat_map(|n| n.children().filter(Node::is_text).collect::<Vec<_>>())
        .filter_map(|n| n.text().map(str::to_owned))
        .collect::<Vec<_>>()
        .join("\n")
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -10.0..100.0f64,
        1 => prop::num::f64::ANY,
        1 => prop::sample::select(vec![0.0, -0.0, 1e308, -1e308, 5e-324, f64::NAN, f64::INFINITY, 1.0]),
    ]
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-zA-Z0-9 ]{0,12}",
        1 => any::<String>(),
        1 => prop::sample::select(vec![
            "</text><script>alert(1)</script>".to_owned(),
            "]]>&amp;\u{0}\u{b}\u{202e}\u{fffe}\u{feff}\"' onload='x".to_owned(),
            "量子計算機の記憶装置".to_owned(),
            "w".repeat(5000),
        ]),
    ]
}

fn axis() -> impl Strategy<Value = ChartAxis> {
    let scale = prop::sample::select(vec![Scale::FromZero, Scale::Linear, Scale::Log2]);
    (word(), word(), scale).prop_map(|(title, unit, scale)| ChartAxis { title, unit, scale })
}

fn many<T: std::fmt::Debug>(
    one: impl Strategy<Value = T>,
    most: usize,
) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(one, 0..most)
}

fn bars() -> impl Strategy<Value = Plot> {
    let segment = (0usize..12, number(), any::<bool>()).prop_map(|(part, value, unsure)| Segment {
        part,
        value,
        unsure,
        ..Segment::default()
    });
    let limit = prop::option::of((number(), word()));
    let start = prop_oneof![4 => Just(0.0), 1 => number()];
    let bar = (word(), many(segment, 6), limit, start);
    let bar = bar.prop_map(|(label, segments, limit, start)| Bar {
        label,
        segments,
        limit,
        start,
    });
    let component = prop::option::of(prop::sample::select(vec![
        Component::KvCache,
        Component::Unexplained,
    ]));
    let part = (word(), component).prop_map(|(label, component)| BarPart { label, component });
    (axis(), many(part, 12), many(bar, 60))
        .prop_map(|(axis, parts, bars)| Plot::Bars(Bars { axis, parts, bars }))
}

fn curves() -> impl Strategy<Value = Plot> {
    let range = prop::option::of((number(), number()));
    let dot = (number(), number(), range, prop::option::of(word()))
        .prop_map(|(x, y, range, label)| Dot { x, y, range, label });
    let curve = (word(), many(dot, 20), any::<bool>()).prop_map(|(label, points, joined)| Curve {
        label,
        points,
        joined,
    });
    let named = || many((number(), word()), 4);
    let parts = (
        axis(),
        axis(),
        many(curve, 8),
        named(),
        named(),
        any::<bool>(),
    );
    parts.prop_map(|(x, y, curves, levels, x_names, ranked)| {
        let front = super::front::pareto_front(&curves);
        Plot::Curves(Curves {
            x,
            y,
            curves,
            levels,
            x_names,
            front: if ranked { front } else { Vec::new() },
        })
    })
}

fn heat() -> impl Strategy<Value = Plot> {
    let square =
        (prop::option::of(number()), word()).prop_map(|(value, text)| Square { value, text });
    let named = || (word(), many(word(), 30));
    (
        named(),
        named(),
        axis(),
        many(many(square, 30), 12),
        any::<bool>(),
    )
        .prop_map(|(x, y, figure, squares, high_is_bad)| {
            Plot::Heat(Heat {
                x,
                y,
                figure,
                squares,
                high_is_bad,
            })
        })
}

fn any_chart() -> impl Strategy<Value = Chart> {
    let plot = prop_oneof![bars(), curves(), heat()];
    (
        word(),
        word(),
        prop::option::of(word()),
        any::<bool>(),
        plot,
    )
        .prop_map(|(id, title, note, simulated, plot)| Chart {
            id,
            title,
            note,
            simulated,
            plot,
        })
}

fn any_timeline() -> impl Strategy<Value = Chart> {
    let stretch =
        (number(), number(), number(), number()).prop_map(|(from_s, to_s, low, high)| Stretch {
            from_s,
            to_s,
            low,
            high,
        });
    let layer = (number(), number(), number()).prop_map(|(value, from_s, to_s)| MemoryLayer {
        component: Component::KvCache,
        value,
        from_s,
        to_s,
    });
    let lane = (
        word(),
        word(),
        many(stretch, 30),
        prop::option::of(number()),
        many(layer, 4),
    )
        .prop_map(|(label, unit, stretches, capacity, layers)| TimelineLane {
            label,
            unit,
            stretches,
            capacity,
            samples: 7,
            memory: layers.len() > 1,
            component: None,
            layers,
        });
    let phase = (word(), number(), number()).prop_map(|(label, from_s, to_s)| TimelinePhase {
        label,
        from_s,
        to_s,
    });
    let event = (word(), number(), any::<bool>()).prop_map(|(label, at_s, bad)| TimelineEvent {
        label,
        at_s,
        bad,
    });
    let range = (number(), number());
    (
        word(),
        range,
        many(lane, 10),
        many(phase, 20),
        many(event, 40),
    )
        .prop_map(|(title, range_s, lanes, phases, events)| {
            let timeline = ChartTimeline {
                range_s,
                lanes,
                phases,
                events,
                ..ChartTimeline::default()
            };
            timeline.timeline_chart("t", title)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_chart_is_a_picture(any in any_chart(), inline in any::<bool>()) {
        let look = if inline { ChartStyle::Inline } else { ChartStyle::Standalone };
        let svg = chart_svg(&any, look);
        is_a_picture(&svg);
        prop_assert_eq!(svg.contains(">SIMULATED<"), any.simulated);
        prop_assert_eq!(&svg, &chart_svg(&any, look), "the same chart, the same bytes");
    }

    #[test]
    fn any_timeline_is_a_picture(any in any_timeline(), inline in any::<bool>()) {
        let look = if inline { ChartStyle::Inline } else { ChartStyle::Standalone };
        is_a_picture(&chart_svg(&any, look));
    }
}

fn memory(bars: Vec<Bar>) -> Chart {
    Chart {
        id: "memory".into(),
        title: "Memory at the peak".into(),
        note: None,
        simulated: true,
        plot: Plot::Bars(Bars {
            axis: ChartAxis {
                title: "memory".into(),
                unit: "GiB".into(),
                scale: Scale::FromZero,
            },
            parts: [
                Component::ModelWeights,
                Component::KvCache,
                Component::Unexplained,
            ]
            .map(BarPart::part_of_component)
            .into(),
            bars,
        }),
    }
}

fn gpu(label: &str) -> Bar {
    let segment = |part, value| Segment {
        part,
        value,
        ..Segment::default()
    };
    Bar {
        label: label.into(),
        segments: vec![
            Segment {
                confidence: Some("high_from_vllm_logs".into()),
                source: Some(super::super::content::SourceId(4)),
                ..segment(0, 14.96)
            },
            segment(1, 3.5),
            Segment {
                unsure: true,
                ..segment(2, -0.75)
            },
        ],
        limit: Some((24.0, "capacity, 24 GiB".into())),
        ..Bar::default()
    }
}

fn over_requests() -> Chart {
    let points = [
        (1.0, 10.0),
        (2.0, 12.0),
        (4.0, 13.0),
        (8.0, f64::NAN),
        (16.0, 17.5),
    ];
    let dot = |(x, y): (f64, f64)| Dot {
        x,
        y,
        range: Some((y - 1.0, y + 1.0)),
        label: None,
    };
    Chart {
        id: "fig1".into(),
        title: "Peak over load".into(),
        note: Some("Two cells are missing: out of memory.".into()),
        simulated: false,
        plot: Plot::Curves(Curves {
            x: ChartAxis {
                title: "requests in flight".into(),
                scale: Scale::Log2,
                ..ChartAxis::default()
            },
            y: ChartAxis {
                title: "peak".into(),
                unit: "GiB".into(),
                ..ChartAxis::default()
            },
            curves: vec![Curve {
                label: "tp 1".into(),
                points: points.map(dot).to_vec(),
                joined: true,
            }],
            levels: vec![(24.0, "capacity".into())],
            ..Curves::default()
        }),
    }
}

fn two_by_two() -> Chart {
    let square = |value, text: &str| Square {
        value,
        text: text.into(),
    };
    Chart {
        id: "heat".into(),
        title: "Peak".into(),
        note: None,
        simulated: false,
        plot: Plot::Heat(Heat {
            x: ("requests".into(), vec!["1".into(), "8".into()]),
            y: ("context".into(), vec!["1024".into(), "8192".into()]),
            figure: ChartAxis {
                title: "peak memory".into(),
                unit: "GiB".into(),
                ..ChartAxis::default()
            },
            squares: vec![
                vec![square(Some(10.5), "10.5"), square(Some(20.0), "20.0")],
                vec![square(Some(15.0), "15.0"), square(None, "oom")],
            ],
            high_is_bad: true,
        }),
    }
}

fn timeline_svg(timeline: &ChartTimeline, look: ChartStyle) -> String {
    chart_svg(
        &timeline.timeline_chart("timeline", "Memory over time"),
        look,
    )
}

fn one_lane() -> ChartTimeline {
    let stretch = |from_s, to_s, low, high| Stretch {
        from_s,
        to_s,
        low,
        high,
    };
    let layer = |component, value, from_s| MemoryLayer {
        component,
        value,
        from_s,
        to_s: f64::INFINITY,
    };
    ChartTimeline {
        origin: Some("2026-11-22T04:00:00Z".into()),
        range_s: (0.0, 60.0),
        lanes: vec![TimelineLane {
            label: "GPU 0 memory".into(),
            unit: "GiB".into(),
            stretches: vec![
                stretch(0.0, 9.9, 0.5, 1.0),
                stretch(10.0, 19.9, 1.0, 15.0),
                stretch(20.0, 20.0, 15.0, 19.0),
                stretch(45.0, 60.0, 15.0, 15.5),
            ],
            capacity: Some(24.0),
            samples: 350,
            memory: true,
            component: None,
            layers: vec![
                layer(Component::ModelWeights, 8.0, 5.0),
                layer(Component::KvCache, 5.0, 12.0),
            ],
        }],
        phases: vec![
            TimelinePhase {
                label: "start".into(),
                from_s: 0.0,
                to_s: 20.0,
            },
            TimelinePhase {
                label: "load".into(),
                from_s: 20.0,
                to_s: 60.0,
            },
        ],
        events: vec![TimelineEvent {
            at_s: 20.0,
            label: "out of memory".into(),
            bad: true,
        }],
        ..ChartTimeline::default()
    }
}

#[test]
fn a_few_pictures_are_as_they_were() {
    insta::assert_snapshot!(
        "bars_inline",
        chart_svg(&memory(vec![gpu("GPU 0")]), ChartStyle::Inline)
    );
    insta::assert_snapshot!(
        "curves",
        chart_svg(&over_requests(), ChartStyle::Standalone)
    );
    insta::assert_snapshot!("heat", chart_svg(&two_by_two(), ChartStyle::Standalone));
    insta::assert_snapshot!(
        "timeline_inline",
        timeline_svg(&one_lane(), ChartStyle::Inline)
    );
}

#[test]
fn a_segment_below_zero_stands_left_of_zero_and_the_sum_counts_it() {
    let svg = chart_svg(&memory(vec![gpu("GPU 0")]), ChartStyle::Inline);
    let document = read(&svg);
    let mark = |part: &str| {
        let found = document
            .descendants()
            .find(|n| n.attribute("data-label") == Some(&format!("GPU 0, {part}")));
        let node = found.unwrap_or_else(|| panic!("no {part}"));
        let x: f64 = node.attribute("x").expect("x").parse().expect("a number");
        let wide: f64 = node
            .attribute("width")
            .expect("width")
            .parse()
            .expect("a number");
        (
            x,
            wide,
            node.attribute("data-source"),
            node.attribute("data-value"),
        )
    };
    let (weights, left) = (mark("Model weights"), mark("Unexplained"));
    assert!(left.0 + left.1 <= weights.0, "{left:?} {weights:?}");
    assert_eq!(weights.2, Some("4"));
    assert_eq!(weights.3, Some("14.96 GiB"));
    assert_eq!(left.3, Some("-0.750 GiB"));
    // 14.96 + 3.5 - 0.75.
    assert!(text_of(&svg).contains("17.71 GiB"), "{}", text_of(&svg));
}

/// Colour of a component's rectangles in a picture, and whether each is hatched.
fn fills(svg: &str, component: Component) -> Vec<(String, bool)> {
    let document = read(svg);
    let label = format!("GPU 0, {}", component.display_label());
    let marks = document
        .descendants()
        .filter(|n| n.attribute("data-label") == Some(&label));
    marks
        .map(|n| {
            let over = n.next_sibling_element().and_then(|n| n.attribute("fill"));
            let hatched = over.is_some_and(|fill| fill.contains("-hatch"));
            (n.attribute("fill").unwrap_or_default().to_owned(), hatched)
        })
        .collect()
}

#[test]
fn a_component_has_one_colour_whatever_stands_beside_it() {
    let drawn = |components: &[Component]| {
        let segments = (0..components.len()).map(|part| Segment {
            part,
            value: 2.0,
            unsure: true,
            ..Segment::default()
        });
        let mut chart = memory(vec![Bar {
            label: "GPU 0".into(),
            segments: segments.collect(),
            ..Bar::default()
        }]);
        if let Plot::Bars(bars) = &mut chart.plot {
            let parts = components.iter().copied();
            bars.parts = parts.map(BarPart::part_of_component).collect();
        }
        chart_svg(&chart, ChartStyle::Inline)
    };
    use Component::{Activations, KvCache, ModelWeights, PageCache, Unexplained};
    let first = drawn(&[ModelWeights, KvCache, Activations, Unexplained]);
    let second = drawn(&[PageCache, Activations, Unexplained]);
    for component in [Activations, Unexplained] {
        assert_eq!(fills(&first, component), fills(&second, component));
    }
    assert_ne!(fills(&first, KvCache), fills(&first, Activations));
    // All are unsure; only what is unexplained is hatched.
    assert_eq!(fills(&first, Activations).len(), 1);
    assert!(fills(&first, Activations).iter().all(|f| !f.1));
    assert!(fills(&first, Unexplained).iter().all(|f| f.1));
    assert!(text_of(&first).contains("Activations (low confidence)"));
}

#[test]
fn neighbours_in_a_bar_are_parted_by_the_ground() {
    let svg = chart_svg(&memory(vec![gpu("GPU 0")]), ChartStyle::Inline);
    let document = read(&svg);
    let edge = |label: &str, wide: bool| -> f64 {
        let mark = document
            .descendants()
            .find(|n| n.attribute("data-label") == Some(label))
            .expect(label);
        let number = |name| -> f64 { mark.attribute(name).expect(name).parse().expect(name) };
        number("x") + if wide { number("width") } else { 0.0 }
    };
    let gap = edge("GPU 0, KV cache pool", false) - edge("GPU 0, Model weights", true);
    assert!((1.3..=1.7).contains(&gap), "{gap}");
}

#[test]
fn what_has_no_place_is_counted_and_never_drawn_as_zero() {
    let svg = chart_svg(&over_requests(), ChartStyle::Inline);
    let document = read(&svg);
    let marks = document
        .descendants()
        .filter(|n| n.has_attribute("data-number"));
    assert_eq!(marks.count(), 5, "four points and a level");
    assert!(text_of(&svg).contains("1 value has no place on the axis"));
    // The line is broken there.
    let line = document
        .descendants()
        .find(|n| n.attribute("stroke-width") == Some("2") && n.attribute("fill") == Some("none"))
        .and_then(|n| n.attribute("d"))
        .expect("a line");
    assert_eq!(line.matches('M').count(), 2, "{line}");
}

#[test]
fn a_heat_map_has_one_colour_where_figures_differ_by_less_than_5_percent() {
    let colours = |figures: [f64; 3]| {
        let mut chart = two_by_two();
        if let Plot::Heat(heat) = &mut chart.plot {
            let square = |v| Square {
                value: Some(v),
                text: String::new(),
            };
            heat.squares = vec![figures.map(square).to_vec()];
        }
        let svg = chart_svg(&chart, ChartStyle::Inline);
        let document = read(&svg);
        let fills = document
            .descendants()
            .filter(|n| n.has_attribute("data-number"));
        let mut fills: Vec<String> = fills
            .map(|n| n.attribute("fill").unwrap_or_default().to_owned())
            .collect();
        fills.dedup();
        (
            fills.len(),
            text_of(&svg).contains("no difference above 5 %"),
        )
    };
    assert_eq!(colours([1.3799, 1.3805, 1.3812]), (1, true));
    assert_eq!(colours([1.0, 1.03, 1.06]), (3, false));
    assert_eq!(colours([2.0, 2.0, 2.0]), (1, false));
}

#[test]
fn a_share_is_drawn_on_a_lane_from_0_to_100() {
    let mut share = one_lane();
    share.lanes[0].unit = "%".into();
    share.lanes[0].capacity = None;
    share.lanes[0].layers.clear();
    share.lanes[0].stretches.iter_mut().for_each(|s| {
        (s.low, s.high) = (s.low / 10.0, s.high / 10.0);
    });
    let svg = timeline_svg(&share, ChartStyle::Inline);
    assert!(svg.contains(r#"data-low="0" data-high="100""#), "{svg}");
}

#[test]
fn layers_are_cut_at_the_measured_line_and_the_rest_is_unexplained() {
    let svg = timeline_svg(&one_lane(), ChartStyle::Inline);
    let document = read(&svg);
    let heights = |label: &str| -> Vec<(f64, f64)> {
        let marks = document
            .descendants()
            .filter(|n| n.attribute("data-label") == Some(label));
        let corners = marks.flat_map(|n| coordinates(n.attribute("d").unwrap_or_default()));
        let all: Vec<(f64, bool)> = corners.collect();
        all.chunks(2).map(|c| (c[0].0, c[1].0)).collect()
    };
    let lane = document
        .descendants()
        .find(|n| n.attribute("class") == Some("lane"))
        .expect("a lane");
    let number = |name| -> f64 { lane.attribute(name).expect(name).parse().expect(name) };
    let (top, bottom, high) = (
        number("data-top"),
        number("data-bottom"),
        number("data-high"),
    );
    assert!(bottom - top >= 255.0, "memory is tall");
    let y = |gib: f64| bottom - gib / high * (bottom - top);
    let reaches = |label: &str, gib: f64| heights(label).iter().any(|c| (c.1 - y(gib)).abs() < 0.2);
    // At first 1 GiB is measured where the weights are 8: the layer ends at the line.
    assert!(reaches("Model weights", 1.0) && reaches("Model weights", 8.0));
    assert!(!reaches("Model weights", 9.0));
    assert!(reaches("KV cache pool", 13.0));
    assert!(reaches("Unexplained", 15.0) && reaches("Unexplained", 19.0));
    // Weights come at second 5, and nothing is drawn of them before.
    let first = heights("Model weights")
        .iter()
        .map(|c| c.0)
        .fold(f64::MAX, f64::min);
    let x = heights("GPU 0 memory")
        .iter()
        .map(|c| c.0)
        .fold(f64::MAX, f64::min);
    assert!(first > x + 20.0, "{first} {x}");
    assert!(
        text_of(&svg).contains("limit 24.00 GiB"),
        "{}",
        text_of(&svg)
    );
}

#[test]
fn a_limit_far_above_is_named_and_does_not_flatten_the_lane() {
    let mut far = one_lane();
    far.lanes[0].capacity = Some(80.0);
    let svg = timeline_svg(&far, ChartStyle::Inline);
    assert!(
        text_of(&svg).contains("limit 80.00 GiB, above"),
        "{}",
        text_of(&svg)
    );
    assert!(!svg.contains("stroke-dasharray=\"6 3\""), "no line");
    far.lanes[0].capacity = Some(57.0);
    let svg = timeline_svg(&far, ChartStyle::Inline);
    assert!(
        svg.contains("stroke-dasharray=\"6 3\""),
        "three times is near"
    );
    assert!(!text_of(&svg).contains("above"));
}

#[test]
fn a_phase_without_room_for_its_name_has_a_number_and_a_line_in_the_list() {
    let mut timeline = one_lane();
    timeline.phases[0].to_s = 1.0;
    timeline.phases[0].label = "getting ready".into();
    timeline.phases[1].from_s = 1.0;
    let text = text_of(&timeline_svg(&timeline, ChartStyle::Inline));
    assert!(text.lines().any(|l| l == "1") && text.lines().any(|l| l == "load"));
    assert!(
        text.contains("Phases: 1 getting ready (0 to 1 s)."),
        "{text}"
    );
}

#[test]
fn hostile_labels_are_text_and_short() {
    let evil = "</text><script>\u{202e}".repeat(50_000);
    let mut bar = gpu(&evil);
    bar.limit = Some((24.0, evil.clone()));
    let mut picture = memory(vec![bar]);
    picture.title = evil.clone();
    picture.note = Some(evil);
    let svg = chart_svg(&picture, ChartStyle::Inline);
    is_a_picture(&svg);
    assert!(svg.len() < 60_000, "{}", svg.len());
    assert!(!svg.contains("<script") && !svg.contains('\u{202e}'));
}

#[test]
fn names_of_phases_and_events_never_overlap() {
    let mut crowded = one_lane();
    crowded.phases = (0..30)
        .map(|i| TimelinePhase {
            label: format!("phase {i}"),
            from_s: f64::from(i),
            to_s: f64::from(i) + 1.0,
        })
        .collect();
    crowded.events = (0..30)
        .map(|i| TimelineEvent {
            at_s: f64::from(i) * 2.0,
            label: format!("event number {i}"),
            bad: false,
        })
        .collect();
    let svg = timeline_svg(&crowded, ChartStyle::Standalone);
    let document = read(&svg);
    let mut boxes: Vec<(f64, f64, f64, bool)> = Vec::new();
    for node in document.descendants().filter(|n| n.has_tag_name("text")) {
        let words: String = node.children().filter_map(|n| n.text()).collect();
        let event = words.starts_with("event ");
        if !event && words.parse::<u32>().is_err() {
            continue;
        }
        let at = |name| -> f64 { node.attribute(name).expect(name).parse().expect("a number") };
        boxes.push((
            at("x"),
            at("x") + lettering::text_width(&words, at("font-size")),
            at("y"),
            event,
        ));
    }
    assert!(boxes.len() > 20, "{}", boxes.len());
    for (i, a) in boxes.iter().enumerate() {
        for b in &boxes[..i] {
            let apart = a.1 <= b.0 || b.1 <= a.0 || (a.2 - b.2).abs() >= 11.0;
            assert!(apart, "{a:?} {b:?}");
        }
    }
    // Phases have numbers, and events without room are counted.
    let left = 30 - boxes.iter().filter(|b| b.3).count();
    assert!(
        svg.contains(&format!("The names of {left} events")),
        "{left}"
    );
}

#[test]
#[cfg(feature = "png")]
fn a_picture_of_pixels_is_twice_as_large_and_has_letters_without_a_system_font() {
    let with = png::png(&chart_svg(&two_by_two(), ChartStyle::Standalone)).expect("a picture");
    let header =
        |png: &[u8], at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four"));
    assert_eq!(&with[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(header(&with, 16), WIDTH as u32 * 2);
    let mut wordless = two_by_two();
    wordless.title = " ".into();
    let without = png::png(&chart_svg(&wordless, ChartStyle::Standalone)).expect("a picture");
    assert_eq!(header(&with, 20), header(&without, 20), "as high");
    assert_ne!(with, without, "the title is drawn");
    assert!(png::png("<svg").is_err());
}

#[test]
#[cfg(feature = "png")]
fn widths_are_those_of_the_font() {
    for (words, size) in [
        ("Memory at the peak of 8 GPUs", 16.0),
        ("MWmwil.,:;!?@#%&*()[]{}<>/|~^_=+-$", 20.0),
        ("0123456789 GiB tokens/s", 11.0),
    ] {
        let svg = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' width='900' height='50'><text x='0' y='30' \
             font-family='Noto Sans' font-size='{size}'>{}</text></svg>",
            lettering::escape_text(words)
        );
        let measured = png::measured(&svg).expect("letters");
        let known = lettering::text_width(words, size);
        assert!(
            (measured - known).abs() < size * 0.1,
            "{words}: {measured} and {known}"
        );
    }
}
