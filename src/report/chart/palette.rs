//! Colours: safe for those who confuse red and green or blue and yellow, with enough contrast on a
//! light and on a dark ground.

use super::pen::FillPattern;
use super::svg::ChartStyle;
use crate::breakdown::Component;

/// What a colour is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// A part of a bar, a curve, a lane; begins again after the last.
    Series(usize),
    /// Words on such a colour.
    OnSeries(usize),
    /// A part of the memory, in every picture the same.
    Part(Component),
    /// Words on such a colour.
    OnPart(Component),
    /// Behind everything.
    Ground,
    /// Words and lines that matter.
    Text,
    /// Words and lines beside them.
    Muted,
    /// Lines of the grid.
    Grid,
    /// Every other phase.
    Band,
    /// What is bad.
    Bad,
}

impl Ink {
    /// Of words on an area of this colour.
    pub fn of_words(self) -> Ink {
        match self {
            Ink::Series(series) => Ink::OnSeries(series),
            Ink::Part(component) => Ink::OnPart(component),
            _ => Ink::Text,
        }
    }

    /// What is drawn over such an area: a series beyond the last colour begins again with dots, and only what is
    /// unexplained is hatched.
    pub fn pattern(self) -> Option<FillPattern> {
        match self {
            Ink::Series(SERIES..) => Some(FillPattern::Dots),
            Ink::Part(Component::Unexplained) => Some(FillPattern::Hatch),
            _ => None,
        }
    }
}

/// How many colours of series there are.
pub const SERIES: usize = 8;

/// Light ground, dark ground. Found by search: colours that stay apart under each kind of colour
/// blindness, each with a contrast of 3 or more to its ground (the test below holds both).
const SERIES_COLOURS: [(u32, u32); SERIES] = [
    (0x3a9ec8, 0x51cec7),
    (0x894c06, 0xfd6324),
    (0x8c51d9, 0x9c85fc),
    (0xac8f38, 0xf0e05a),
    (0x287d79, 0xa8faf4),
    (0x6e1416, 0xbd3a2b),
    (0x4a4c90, 0xb56e9e),
    (0x2b2862, 0x8347cf),
];

/// Each component with its light and its dark colour, of one hue. Found by search as the series are;
/// [`PARTS`] is the only list of them. Unexplained is the only grey.
const PARTS: [(Component, u32, u32); 13] = [
    (Component::Baseline, 0x603a05, 0xd1bdab),
    (Component::DriverReserved, 0x202f3b, 0x9da3b1),
    (Component::ModelWeights, 0x0594f3, 0x7eb1fc),
    (Component::KvCache, 0xbc6b05, 0xfa9b57),
    (Component::Activations, 0x669a61, 0xb5f2b5),
    (Component::CudaGraphs, 0x592e95, 0x9b63eb),
    (Component::NonTorch, 0x1b6572, 0x44e0ef),
    (Component::Runtime, 0xcc0b40, 0xe07770),
    (Component::WarmupGrowth, 0x636102, 0xf9e535),
    (Component::PageCache, 0x0e4565, 0x3181ac),
    (Component::BenchClient, 0xe44db5, 0xe91a90),
    (Component::Swap, 0x4e1a10, 0xb94028),
    (Component::Unexplained, 0x787878, 0x6f6f6f),
];

/// Steps of the colours of a heat map, from little to much, where much is bad; the words of a
/// square are dark or light after its own colour, so that one row serves both grounds.
const BAD: [u32; 9] = [
    0xfff7e0, 0xfee8b6, 0xfdd58c, 0xfdb768, 0xf9914d, 0xe96a3c, 0xcb452f, 0xa32422, 0x740f1b,
];

/// The same where much is good.
const GOOD: [u32; 9] = [
    0xf1f8f4, 0xd7eee2, 0xb3e0d2, 0x86cdc4, 0x58b3b6, 0x3595a6, 0x23748f, 0x1d5476, 0x173458,
];

/// The colour as an attribute's value: fixed, or a custom property with the light one to fall back
/// on.
pub fn paint_for(ink: Ink, look: ChartStyle) -> String {
    let fixed = hex(colour(ink, false));
    match look {
        ChartStyle::Standalone => fixed,
        ChartStyle::Inline => format!("var(--{},{fixed})", property(ink)),
    }
}

/// The custom properties that pictures in a page use, as declarations of CSS.
pub fn colour_properties(dark: bool) -> String {
    let series = (0..SERIES).flat_map(|n| [Ink::Series(n), Ink::OnSeries(n)]);
    let parts = (PARTS.iter()).flat_map(|p| [Ink::Part(p.0), Ink::OnPart(p.0)]);
    let others = [
        Ink::Ground,
        Ink::Text,
        Ink::Muted,
        Ink::Grid,
        Ink::Band,
        Ink::Bad,
    ];
    series
        .chain(parts)
        .chain(others)
        .map(|ink| format!("--{}:{};", property(ink), hex(colour(ink, dark))))
        .collect()
}

/// Rules of CSS for the small squares before the names of components.
pub fn swatch_rules() -> String {
    PARTS
        .iter()
        .map(|(component, ..)| {
            let name = property(Ink::Part(*component));
            format!(".{name}{{background-color:var(--{name})}}")
        })
        .collect()
}

/// The class and the custom property of a component: `part-kv-cache-pool`.
pub fn part_class(component: Component) -> String {
    property(Ink::Part(component))
}

/// Red, green and blue of a component, for terminals: the same as in pictures.
pub fn component_colour(component: Component, dark: bool) -> (u8, u8, u8) {
    let [_, red, green, blue] = colour(Ink::Part(component), dark).to_be_bytes();
    (red, green, blue)
}

/// Colour of a square at `share` of the way from the lowest to the highest, and of words on it.
pub fn heat_colour(share: f64, high_is_bad: bool) -> (String, &'static str) {
    let steps = if high_is_bad { &BAD } else { &GOOD };
    let at = (share.clamp(0.0, 1.0) * (steps.len() - 1) as f64).round() as usize;
    let step = steps[at.min(steps.len() - 1)];
    (hex(step), text_colour_on(step))
}

fn property(ink: Ink) -> String {
    match ink {
        Ink::Series(n) => format!("series-{}", n % SERIES + 1),
        Ink::OnSeries(n) => format!("series-{}-ink", n % SERIES + 1),
        Ink::Part(component) => format!(
            "part-{}",
            component.display_label().to_lowercase().replace(' ', "-")
        ),
        Ink::OnPart(component) => format!("{}-ink", property(Ink::Part(component))),
        Ink::Ground => "chart-ground".into(),
        Ink::Text => "chart-ink".into(),
        Ink::Muted => "chart-muted".into(),
        Ink::Grid => "chart-grid".into(),
        Ink::Band => "chart-band".into(),
        Ink::Bad => "chart-bad".into(),
    }
}

fn colour(ink: Ink, dark: bool) -> u32 {
    let on_both = |(light, night)| (black_or_white(light), black_or_white(night));
    let (light, night) = match ink {
        Ink::Series(n) => SERIES_COLOURS[n % SERIES],
        Ink::OnSeries(n) => on_both(SERIES_COLOURS[n % SERIES]),
        Ink::Part(component) => part_colours(component),
        Ink::OnPart(component) => on_both(part_colours(component)),
        Ink::Ground => (0xffffff, 0x161b22),
        Ink::Text => (0x1c2128, 0xe6edf3),
        Ink::Muted => (0x57606a, 0x9da7b3),
        Ink::Grid => (0xdfe3e8, 0x343b44),
        Ink::Band => (0xf1f4f7, 0x1f2630),
        Ink::Bad => (0xb3261e, 0xff8a80),
    };
    if dark { night } else { light }
}

/// The table has every component; a test holds it.
fn part_colours(component: Component) -> (u32, u32) {
    let found = PARTS.iter().find(|p| p.0 == component);
    found.map_or((0x787878, 0x6f6f6f), |p| (p.1, p.2))
}

fn hex(colour: u32) -> String {
    format!("#{colour:06x}")
}

fn text_colour_on(colour: u32) -> &'static str {
    match black_or_white(colour) {
        0 => "#000000",
        _ => "#ffffff",
    }
}

fn black_or_white(ground: u32) -> u32 {
    if contrast(ground, 0) >= contrast(ground, 0xffffff) {
        0
    } else {
        0xffffff
    }
}

/// Contrast of two colours as WCAG 2 defines it, 1 to 21.
pub(in crate::report) fn contrast(a: u32, b: u32) -> f64 {
    let luminance = |colour: u32| {
        let [r, g, b] = channels(colour);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// Red, green and blue as shares of light.
fn channels(colour: u32) -> [f64; 3] {
    [16, 8, 0].map(|shift| {
        let channel = f64::from((colour >> shift) & 0xff) / 255.0;
        match channel {
            c if c <= 0.040_45 => c / 12.92,
            c => ((c + 0.055) / 1.055).powf(2.4),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stand_out_from_their_ground_and_words_from_both() {
        for dark in [false, true] {
            let ground = colour(Ink::Ground, dark);
            for n in 0..SERIES {
                let series = colour(Ink::Series(n), dark);
                assert!(contrast(series, ground) >= 3.0, "series {n} dark {dark}");
                let words = colour(Ink::OnSeries(n), dark);
                assert!(contrast(series, words) >= 4.5, "on series {n} dark {dark}");
            }
            for (component, ..) in PARTS {
                let part = colour(Ink::Part(component), dark);
                assert!(contrast(part, ground) >= 3.0, "{component:?} dark {dark}");
                let words = colour(Ink::OnPart(component), dark);
                assert!(contrast(part, words) >= 4.5, "on {component:?} dark {dark}");
            }
            for ink in [Ink::Text, Ink::Muted, Ink::Bad] {
                for ground in [Ink::Ground, Ink::Band] {
                    let ground = colour(ground, dark);
                    assert!(
                        contrast(colour(ink, dark), ground) >= 4.5,
                        "{ink:?} dark {dark}"
                    );
                }
            }
        }
        for steps in [BAD, GOOD] {
            for step in steps {
                assert!(contrast(step, black_or_white(step)) >= 4.5, "{step:06x}");
            }
        }
    }

    /// What people see who lack one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1),
    /// in a space where distance is what the eye distinguishes (Ottosson's Oklab).
    fn simulate_vision(colour: u32) -> [[f64; 3]; 4] {
        const KINDS: [[[f64; 3]; 3]; 4] = [
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
            [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_900],
            ],
        ];
        let light = channels(colour);
        let turned = |m: &[[f64; 3]; 3], v: [f64; 3]| {
            m.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2])
        };
        KINDS.map(|kind| {
            let cones = turned(
                &[
                    [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
                    [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
                    [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
                ],
                turned(&kind, light).map(|c| c.max(0.0)),
            );
            turned(
                &[
                    [0.210_454_255_3, 0.793_617_785, -0.004_072_046_8],
                    [1.977_998_495_1, -2.428_592_205, 0.450_593_709_9],
                    [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766],
                ],
                cones.map(|c| c.max(0.0).cbrt()),
            )
        })
    }

    /// Every two inks are further apart than `least` for every kind of eye.
    fn assert_apart(inks: &[Ink], least: f64) {
        for dark in [false, true] {
            for (n, a) in inks.iter().enumerate() {
                for b in &inks[..n] {
                    let (x, y) = (colour(*a, dark), colour(*b, dark));
                    for (x, y) in simulate_vision(x).iter().zip(simulate_vision(y)) {
                        let distance: f64 = (0..3).map(|i| (x[i] - y[i]).powi(2)).sum();
                        assert!(distance.sqrt() > least, "{a:?} and {b:?}, dark {dark}");
                    }
                }
            }
        }
    }

    #[test]
    fn colours_stay_apart_for_the_colour_blind() {
        assert_apart(&(0..SERIES).map(Ink::Series).collect::<Vec<_>>(), 0.08);
        assert_apart(&PARTS.map(|p| Ink::Part(p.0)), 0.07);
    }

    #[test]
    fn every_component_has_one_hue_and_only_unexplained_is_grey() {
        let schema = serde_json::to_value(schemars::schema_for!(Component)).unwrap();
        let known = schema["oneOf"].as_array().unwrap().iter();
        let known: usize = known
            .map(|v| v["enum"].as_array().map_or(1, Vec::len))
            .sum();
        assert_eq!(known, PARTS.len());
        let hue = |colour: u32| {
            let [_, a, b] = simulate_vision(colour)[0];
            (b.atan2(a).to_degrees(), a.hypot(b))
        };
        for (component, light, dark) in PARTS {
            let ((of_light, vivid), (of_dark, _)) = (hue(light), hue(dark));
            assert_eq!(
                vivid < 0.01,
                component == Component::Unexplained,
                "{component:?}"
            );
            let apart = (of_light - of_dark).rem_euclid(360.0);
            let same = component == Component::Unexplained || apart.min(360.0 - apart) < 30.0;
            assert!(same, "{component:?}: {of_light} and {of_dark}");
            assert_eq!(
                component_colour(component, false),
                ((light >> 16) as u8, (light >> 8) as u8, light as u8)
            );
        }
    }

    #[test]
    fn a_page_defines_what_its_pictures_use() {
        let defined = colour_properties(true);
        let part = Ink::Part(Component::KvCache);
        for ink in [Ink::Series(9), part, Ink::OnSeries(0), Ink::Bad, Ink::Band] {
            let used = paint_for(ink, ChartStyle::Inline);
            let name = used.trim_start_matches("var(").split(',').next();
            assert!(
                name.is_some_and(|n| defined.contains(&format!("{n}:"))),
                "{used}"
            );
        }
    }
}
