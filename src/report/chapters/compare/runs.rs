//! Two runs side by side.

use super::{ONE_SIDED, change_in_percent};
use crate::capture::DeviceKind;
use crate::compare::profiles::{Pair, PairRow};
use crate::compare::subject::{Kind, Subject, Who};
use crate::compare::{Unit, difference_percent};
use crate::engine::facts::Severity;
use crate::matrix::RowFigures;
use crate::profile::Profile;
use crate::report::chapters::words::is_low_confidence;
use crate::report::chart::{Bar, BarPart, Bars, Chart, ChartAxis, Plot, Scale, Segment};
use crate::report::compare::describe_profile;
use crate::report::content::{ContentBlock, Grid, note_block};
use crate::report::figures::{change_cell, figure_cell, gib_cell, gib_text, with_plus};
use crate::report::layout::{counted_words, format_figure, join_first, join_sentences};
use crate::report::material::ReportRun;
use crate::report::tables::{TableBuilder, word_or_reason};
use crate::units::{Bytes, GIB, to_gib};

/// A change that the table shows as 0.000, GiB.
const SMALLEST_CHANGE: f64 = 0.0005;

/// Changes smaller than this share of the peak are drawn larger, on an axis that does not begin at zero.
const SMALL_SHARE: f64 = 0.1;

/// Settings that are unknown in one run and named.
const MOST_NAMES: usize = 3;

/// A limit above this many times the peak would flatten the bars.
const FAR_LIMIT: f64 = 2.0;

/// Two runs: what differs, and behind it where they ran.
pub(super) fn run_blocks(a: &ReportRun, b: &ReportRun) -> (Vec<ContentBlock>, Vec<ContentBlock>) {
    let pair = compare_runs(a, b);
    let drawn = change_waterfall(&pair, &a.profile, &b.profile);
    let first_tokens = first_tokens(&a.profile, &b.profile);
    let blocks = blocks_of_pair(&pair, drawn, first_tokens);
    (blocks, hosts(&a.profile, &b.profile))
}

pub(in crate::report::chapters) fn compare_runs(a: &ReportRun, b: &ReportRun) -> Pair {
    Pair::compare_subjects(
        &Subject::subject_of_profile(&a.profile, &a.name),
        &Subject::subject_of_profile(&b.profile, &b.name),
    )
}

/// What two profiles have and what differs, as far as their comparison knows.
pub(in crate::report) fn pair_blocks(pair: &Pair) -> Vec<ContentBlock> {
    blocks_of_pair(pair, None, Vec::new())
}

/// The same with what the profiles themselves add: the way from peak to peak, and further figures.
fn blocks_of_pair(pair: &Pair, way: Option<Chart>, further: Vec<PairFigure>) -> Vec<ContentBlock> {
    let mut blocks = vec![
        format!("A is {}.", describe_profile(&pair.profile1)).into(),
        format!("B is {}.", describe_profile(&pair.profile2)).into(),
    ];
    let incomparable = pair.incomparable.iter();
    blocks.extend(incomparable.map(|s| note_block(Severity::Error, "not_comparable", s)));
    blocks.extend(settings_blocks(pair));
    blocks.extend(way.map(ContentBlock::Chart));
    blocks.push(ContentBlock::Table(memory_table(pair)));
    blocks.push(ContentBlock::Table(performance(pair, further)));
    let warnings = pair.warnings.iter();
    blocks.extend(warnings.map(|s| note_block(Severity::Warning, "to_know", s)));
    blocks
}

/// `Not comparable: output_len differs: 64 and 128.`
pub(in crate::report) fn incomparable_sentence(pair: &Pair) -> Option<String> {
    let why = pair.incomparable.join("; ");
    (!why.is_empty()).then(|| format!("Not comparable: {}.", why.trim_end_matches('.')))
}

/// The peaks of both, GiB, and whether they are those of the fullest of several GPUs.
pub(in crate::report) fn fullest_peaks(pair: &Pair) -> ([Option<f64>; 2], bool) {
    let total = pair.components.iter().find(|r| r.kind == Kind::Total);
    let sums = total.map_or([None; 2], |t| [t.profile1_gb, t.profile2_gb]);
    // Page cache is no reason to leave a container's total.
    let fullest = |who: &Who, sum: Option<f64>| match &who.fullest_device {
        Some(gauge) if gauge.label.starts_with("GPU") => sum.and(Some(to_gib(gauge.used_bytes))),
        _ => sum,
    };
    // Documents before 4.0 have sums alone, and a sum is compared with a sum.
    let sides = [(&pair.profile1, sums[0]), (&pair.profile2, sums[1])];
    let peaks = if sides.iter().all(|(who, _)| who.fullest_device.is_some()) {
        sides.map(|(who, sum)| fullest(who, sum))
    } else {
        sums
    };
    (peaks, peaks != sums)
}

/// The peak of both in a sentence, behind what makes them not comparable.
pub(in crate::report) fn pair_sentence(pair: &Pair) -> String {
    let (peaks, is_fullest) = fullest_peaks(pair);
    let mut text = incomparable_sentence(pair).map_or_else(String::new, |s| s + " ");
    let [Some(a), Some(b)] = peaks else {
        return text + "The peak is not known of both.";
    };
    let moved = match difference_percent(a, b) {
        _ if a == b => "as much as A".to_owned(),
        Some(p) => {
            let (by, more) = (gib_text((b - a).abs()), if b > a { "more" } else { "less" });
            format!("{by} GiB ({:.1} %) {more} than A", p.abs())
        }
        None => "and A nothing".to_owned(),
    };
    let (on, over) = if is_fullest {
        (" on its fullest GPU", " over all GPUs")
    } else {
        ("", "")
    };
    text += &format!("At its peak B held {} GiB{on}, {moved}", gib_text(b));
    // What moved most, apart from the peak itself and the sum of the overhead.
    let parts = pair.components.iter().filter(|r| is_separate_part(pair, r));
    let most = parts
        .filter_map(|r| Some((r.diff_gb?, &r.label)))
        .max_by(|x, y| x.0.abs().total_cmp(&y.0.abs()))
        .filter(|(moved, _)| moved.abs() >= 0.001);
    if let Some((moved, label)) = most {
        let moved = with_plus(moved, gib_text(moved));
        text += &format!("; {label} moved most ({moved} GiB{over})");
    }
    text + "."
}

/// Whether a row is a part that the others do not hold: those sum to the peak.
fn is_separate_part(pair: &Pair, row: &PairRow) -> bool {
    let inner = pair.components.iter().any(|r| r.kind == Kind::OfOverhead);
    match row.kind {
        Kind::Part => !(inner && row.component == "framework_overhead"),
        Kind::OfOverhead => true,
        Kind::Total | Kind::Other => false,
    }
}

fn settings_blocks(pair: &Pair) -> Vec<ContentBlock> {
    let (known, one_sided): (Vec<_>, Vec<_>) =
        (pair.settings.iter()).partition(|d| d.profile1.is_some() && d.profile2.is_some());
    let table = TableBuilder::of_items(known)
        .words("setting", "setting", |d| &d.setting)
        .known_words("A", "a", |d| d.profile1.as_deref())
        .known_words("B", "b", |d| d.profile2.as_deref())
        .grid_of_rows("compare_settings", "Settings that differ");
    let mut blocks = vec![match table {
        Some(table) => ContentBlock::Table(table),
        None => "No setting that is known of both differs.".into(),
    }];
    if !one_sided.is_empty() {
        let more = |_| ", …; `plimsoll compare --json` has all".into();
        let names = join_first(&one_sided, MOST_NAMES, ", ", |d| d.setting.clone(), more);
        let count = counted_words(one_sided.len(), "setting is", "settings are");
        blocks.push(format!("{count} unknown in one of the two: {names}.").into());
    }
    blocks
}

/// What is known of a host and of what measured on it.
fn host_facts(profile: &Profile) -> Vec<(&'static str, Option<String>)> {
    let meta = &profile.metadata;
    let host = &meta.host;
    let word = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
    let devices = &profile.gpu_info.devices;
    let mut names: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
    names.dedup();
    let size = |bytes: Option<u64>| bytes.map(|b| Bytes(b).to_string());
    let capacity = size(all_capacity(profile));
    vec![
        ("host", word(&host.hostname)),
        ("kernel", word(&host.kernel)),
        ("architecture", word(&host.arch)),
        ("processors", (host.cpus > 0).then(|| host.cpus.to_string())),
        ("memory", size(host.memory_bytes)),
        ("Docker", host.docker_version.clone()),
        ("devices", word(&names.join(", "))),
        ("memory of the devices", capacity),
        ("measured by", word(&meta.memory_backend.name)),
        ("driver or interface", meta.memory_backend.version.clone()),
        ("image", word(&meta.container.image_id)),
    ]
}

fn hosts(a: &Profile, b: &Profile) -> Vec<ContentBlock> {
    let (a, b) = (host_facts(a), host_facts(b));
    let facts = a.iter().zip(&b).filter(|((_, a), (_, b))| a != b);
    let known = |fact: &Option<String>| word_or_reason(fact.as_ref(), "unknown");
    let table = TableBuilder::of_items(facts)
        .words("", "fact", |((name, _), _)| *name)
        .cells("A", "a", |((_, a), _)| known(a))
        .cells("B", "b", |(_, (_, b))| known(b))
        .grid_of_rows("compare_hosts", "Where they ran, as far as it differs");
    table.into_iter().map(ContentBlock::Table).collect()
}

/// From the peak of A by the changes of its components to the peak of B; nothing where a peak is unknown.
fn change_waterfall(pair: &Pair, a: &Profile, b: &Profile) -> Option<Chart> {
    let total = pair.components.iter().find(|r| r.kind == Kind::Total)?;
    let (from, to) = total.profile1_gb.zip(total.profile2_gb)?;
    let rows = pair.components.iter();
    let rows: Vec<&PairRow> = rows.filter(|r| is_separate_part(pair, r)).collect();
    let whole = |letter: &str, profile: &Profile, pick: fn(&PairRow) -> Option<f64>| {
        let segment = |(part, row): (usize, &&PairRow)| {
            let sure = confidence(profile, row);
            Some(Segment {
                part,
                value: pick(row).filter(|v| *v != 0.0)?,
                unsure: sure.as_deref().is_some_and(is_low_confidence),
                confidence: sure,
                source: None,
            })
        };
        Bar {
            label: letter.to_owned(),
            segments: rows.iter().enumerate().filter_map(segment).collect(),
            limit: device_capacity(profile).filter(|l| l.0 <= from.max(to) * FAR_LIMIT),
            ..Bar::default()
        }
    };
    let parts = rows.iter().map(|r| BarPart {
        label: r.label.clone(),
        component: serde_json::from_value(r.component.as_str().into()).ok(),
    });
    let mut parts: Vec<BarPart> = parts.collect();
    let is_change = |change: &f64| change.abs() >= SMALLEST_CHANGE;
    let changes = rows.iter().enumerate();
    let changes = changes.filter_map(|(part, r)| Some((part, r.diff_gb.filter(is_change)?)));
    let mut changes: Vec<(usize, f64)> = changes.collect();
    // What is known of one side alone has no change of its own.
    let rest = to - from - changes.iter().map(|c| c.1).sum::<f64>();
    if is_change(&rest) {
        changes.push((parts.len(), rest));
        parts.push(BarPart::plain_part("Not attributed"));
    }
    let mut bars = vec![whole("A", a, |r| r.profile1_gb)];
    let mut start = from;
    for (part, change) in changes {
        bars.push(Bar {
            label: parts[part].label.clone(),
            segments: vec![Segment {
                part,
                value: change,
                ..Segment::default()
            }],
            start,
            ..Bar::default()
        });
        start += change;
    }
    bars.push(whole("B", b, |r| r.profile2_gb));
    let levels = bars.iter().filter(|b| b.is_change());
    let levels = levels.flat_map(|b| [b.start, b.end()]);
    let (low, high) = levels.fold((from, from), |(l, h): (f64, f64), v| (l.min(v), h.max(v)));
    let zoomed = low > 0.0 && high - low < from.max(to) * SMALL_SHARE && bars.len() > 2;

    let labels = |pick: &dyn Fn(&PairRow) -> bool| -> Vec<&str> {
        let found = rows.iter().filter(|r| pick(r));
        found.map(|r| r.label.as_str()).collect()
    };
    let same = |r: &PairRow| r.diff_gb.is_some_and(|d| !is_change(&d));
    let groups = [
        ("No change", labels(&same)),
        ("Not known of A", labels(&|r| r.profile1_gb.is_none())),
        ("Not known of B", labels(&|r| r.profile2_gb.is_none())),
    ];
    let groups = groups.into_iter().filter(|(_, labels)| !labels.is_empty());
    let notes = groups.map(|(words, labels)| format!("{words}: {}.", labels.join(", ")));
    let mut notes: Vec<String> = notes.collect();
    let mut scale = Scale::FromZero;
    if zoomed {
        scale = Scale::Linear;
        notes.push("The axis does not begin at zero: A and B are cut at its left end.".into());
        // A limit would be beyond the end of such an axis.
        bars.iter_mut().for_each(|bar| bar.limit = None);
    }
    let plot = Plot::Bars(Bars {
        axis: ChartAxis::new_axis("memory", "GiB", scale),
        parts,
        bars,
    });
    let (id, title) = ("compare_memory", "Memory at the peak, from A to B");
    let simulated = pair.profile1.simulated || pair.profile2.simulated;
    let note = join_sentences(notes);
    Some(Chart::new_chart(id, title, note, simulated, plot))
}

/// How sure a part is, in the profile's word.
fn confidence(profile: &Profile, row: &PairRow) -> Option<String> {
    let mut parts = profile.memory_breakdown.components.iter();
    let part = parts.find(|p| p.component.display_label() == row.label)?;
    Some(part.confidence.0.clone())
}

/// What the devices have together, bytes; `None` without devices.
fn all_capacity(profile: &Profile) -> Option<u64> {
    let devices = &profile.gpu_info.devices;
    let sizes = devices.iter().map(|d| d.total_bytes);
    sizes.sum::<Option<u64>>().filter(|_| !devices.is_empty())
}

/// The same in GiB, and what it is.
fn device_capacity(profile: &Profile) -> Option<(f64, String)> {
    let mut devices = profile.gpu_info.devices.iter();
    let what = if devices.all(|d| d.kind == DeviceKind::Gpu) {
        "capacity"
    } else {
        "limit of the container, or the host's memory"
    };
    Some((to_gib(all_capacity(profile)?), what.to_owned()))
}

fn memory_table(pair: &Pair) -> Grid {
    let why = |v: &Option<String>| v.clone().unwrap_or_else(|| "unknown".into());
    let over = match fullest_peaks(pair) {
        (_, true) => ", all GPUs together",
        _ => "",
    };
    TableBuilder::of_items(&pair.components)
        .words("part", "part", |r| match r.kind {
            Kind::OfOverhead => format!("of it: {}", r.label),
            Kind::Total | Kind::Part | Kind::Other => r.label.clone(),
        })
        .figures("A, GiB", "a_gib", |r| {
            gib_cell(r.profile1_gb, &why(&r.profile1_unknown))
        })
        .figures("B, GiB", "b_gib", |r| {
            gib_cell(r.profile2_gb, &why(&r.profile2_unknown))
        })
        .figures("B - A, GiB", "diff_gib", |r| {
            change_cell(r.diff_gb, ONE_SIDED, gib_text)
        })
        .figures("B - A, %", "diff_pct", |r| {
            change_in_percent(r.profile1_gb, r.profile2_gb)
        })
        .known_words("A rests on", "a_source", |r| r.profile1_source.as_deref())
        .known_words("B rests on", "b_source", |r| r.profile2_source.as_deref())
        .grid("compare_parts", format!("Memory at the peak{over}"))
}

/// A figure of both runs under its label.
type PairFigure = (String, [Option<f64>; 2]);

fn performance(pair: &Pair, further: Vec<PairFigure>) -> Grid {
    let others = pair.others.iter().map(|o| {
        let both = [o.profile1, o.profile2];
        match o.unit {
            Unit::Bytes => {
                let gib = both.map(|bytes| bytes.map(|b| b / GIB));
                (format!("{}, GiB", o.label), gib)
            }
            _ => (o.label.clone(), both),
        }
    });
    let rows: Vec<PairFigure> = others.chain(further).collect();
    TableBuilder::of_items(&rows)
        .words("figure", "figure", |(label, _)| label)
        .figures("A", "a", |(_, [a, _])| figure_cell(*a, "not measured"))
        .figures("B", "b", |(_, [_, b])| figure_cell(*b, "not measured"))
        .figures("B - A", "diff", |(_, [a, b])| {
            let change = a.zip(*b).map(|(a, b)| b - a);
            change_cell(change, ONE_SIDED, format_figure)
        })
        .figures("B - A, %", "diff_pct", |(_, [a, b])| {
            change_in_percent(*a, *b)
        })
        .grid("compare_performance", "Pool, latency, throughput")
}

/// Time to the first token and per further token, where one of them has it.
fn first_tokens(a: &Profile, b: &Profile) -> Vec<PairFigure> {
    let both = [a, b].map(RowFigures::of_profile);
    let first = both.each_ref().map(|f| f.ttft_mean_ms);
    let further = both.each_ref().map(|f| f.tpot_mean_ms);
    let mut rows = vec![
        ("mean time to first token, ms".to_owned(), first),
        ("mean time per further token, ms".to_owned(), further),
    ];
    rows.retain(|(_, both)| both.iter().any(Option::is_some));
    rows
}
