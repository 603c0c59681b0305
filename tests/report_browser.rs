//! The page of `plimsoll report --format html` in a browser: quiet, looked into by pointer and
//! keyboard, and inert whatever it was told. With `PLIMSOLL_TEST_PICTURES=FOLDER` it leaves pictures.

use crate::common;
use crate::common::browser;
use crate::common::pages::{plain as plain_text, terminal_page};
use crate::common::reports;
use assert_cmd::Command;
use browser::Browser;
use common::e2e::{Need, have};
use plimsoll::profile::Profile;
use plimsoll::report::chapters::build_report;
use plimsoll::report::chart::{Plot, TimelineLane};
use plimsoll::report::content::{Chapter, ContentBlock, Grid, Report, TableCell, TableColumn};
use plimsoll::report::material::{Material, StoredDocument};
use reports::{plain, report, written};
use serde_json::{Value, json};

const CANVAS: &str = "document.querySelector('figure.timeline canvas')";

/// The page in a browser, or nothing where there is none.
fn shown(test: &str, report: &Report) -> Option<Browser> {
    if !have(test, &[Need::Chromium]) {
        return None;
    }
    let mut browser = Browser::start();
    let html = written("html", report);
    std::fs::write(browser.folder().join("report.html"), html).unwrap();
    browser.open("report.html");
    Some(browser)
}

fn lane(report: &Report, n: usize) -> &TimelineLane {
    let blocks = report.chapters.iter().flat_map(|c| &c.blocks);
    let timelines = blocks.filter_map(|block| match block {
        ContentBlock::Chart(chart) => match &chart.plot {
            Plot::Timeline(timeline) => Some(&timeline.lanes[n]),
            _ => None,
        },
        _ => None,
    });
    timelines.into_iter().next().unwrap()
}

/// What the chart must say of a lane at a moment: the stretch that is nearest.
fn reading(lane: &TimelineLane, at: f64) -> String {
    let far = |from: f64, to: f64| (from - at).max(at - to).max(0.0);
    let nearest = lane
        .stretches
        .iter()
        .min_by(|a, b| far(a.from_s, a.to_s).total_cmp(&far(b.from_s, b.to_s)))
        .unwrap();
    let figure = |v: f64| match v.abs() {
        m if m >= 99.95 => format!("{v:.1}"),
        m if m >= 9.995 => format!("{v:.2}"),
        _ => format!("{v:.3}"),
    };
    format!(
        "{} – {} {}",
        figure(nearest.low),
        figure(nearest.high),
        lane.unit
    )
}

/// Points at the chart at a share of its width; the moment there and what is said.
fn point(browser: &mut Browser, share: f64) -> (f64, String) {
    let (x, y) = browser.place(CANVAS, share);
    browser.pointer("mouseMoved", x, y);
    browser.settle();
    let at = browser.value(&format!("Number({CANVAS}.closest('figure').dataset.at)"));
    let said = browser.value("document.querySelector('.tip:not([hidden])')?.innerText ?? ''");
    (at.as_f64().unwrap(), said.as_str().unwrap().to_owned())
}

fn range(browser: &mut Browser) -> (f64, f64) {
    let range = browser.value(&format!(
        "(d => [Number(d.from), Number(d.to)])({CANVAS}.closest('figure').dataset)"
    ));
    (range[0].as_f64().unwrap(), range[1].as_f64().unwrap())
}

#[test]
fn memory_over_time_is_looked_into() {
    let report = report(&str::to_owned, 100_000);
    let Some(mut browser) = shown(test_name!(), &report) else {
        return;
    };
    assert_eq!(range(&mut browser), (0.0, 300.0), "all of it");

    let (at, said) = point(&mut browser, 0.6);
    for n in [0, 1] {
        let expected = reading(lane(&report, n), at);
        assert!(said.contains(&expected), "{expected} at {at} in {said}");
    }
    assert!(said.contains("bench"), "the phase: {said}");

    // The wheel scrolls the page until the chart is asked for.
    let (x, y) = browser.place(CANVAS, 0.6);
    browser.pointer("mousePressed", x, y);
    browser.pointer("mouseReleased", x, y);
    for _ in 0..8 {
        browser.wheel(x, y, -300.0);
        browser.settle();
    }
    let (from, to) = range(&mut browser);
    assert!(
        to - from < 1.0 && from < at && at < to,
        "{from} {to} about {at}"
    );
    let (near, said) = point(&mut browser, 0.45);
    let expected = reading(lane(&report, 0), near);
    assert!(said.contains(&expected), "{expected} at {near} in {said}");
    browser.picture("zoomed");

    // Dragging and keys.
    let (x, y) = browser.place(CANVAS, 0.5);
    browser.pointer("mousePressed", x, y);
    browser.pointer("mouseMoved", x + 100.0, y);
    browser.pointer("mouseReleased", x + 100.0, y);
    browser.settle();
    assert!(range(&mut browser).0 < from);
    browser.key("0", "Digit0", "0");
    browser.settle();
    assert_eq!(range(&mut browser).0, 0.0);
    browser.key("+", "Equal", "+");
    browser.settle();
    let (from, to) = range(&mut browser);
    assert!((to - from - 150.0).abs() < 1.0, "{from} {to}");
    browser.key("ArrowRight", "ArrowRight", "");
    browser.settle();
    let told = browser.value("document.querySelector('.look [aria-live]').textContent");
    assert!(told.as_str().unwrap().contains("GPU 0 memory"), "{told}");
    browser.quiet();
}

#[test]
fn no_peak_is_lost_when_all_is_shown() {
    let report = report(&str::to_owned, 100_000);
    let Some(mut browser) = shown(test_name!(), &report) else {
        return;
    };
    // How far up the first lane is drawn in each column of pixels: below its words, above its end.
    let tops = browser.value(&format!(
        "(() => {{
            const c = {CANVAS}, dense = c.width / c.clientWidth, pen = c.getContext('2d');
            const ink = getComputedStyle(document.documentElement).getPropertyValue('--chart-ink').trim();
            const want = [1, 3, 5].map(i => parseInt(ink.slice(i, i + 2), 16));
            const top = Math.round(50 * dense), high = Math.round(80 * dense), wide = c.width;
            const {{ data }} = pen.getImageData(0, top, wide, high);
            const tops = [];
            for (let x = Math.round(wide * .6); x < wide * .8; x++) {{
                let y = 0;
                while (y < high && !want.every((v, i) => Math.abs(data[(y * wide + x) * 4 + i] - v) < 12)) y++;
                tops.push(y);
            }}
            return tops;
        }})()"
    ));
    let tops: Vec<i64> = tops
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_i64().unwrap())
        .collect();
    let highest = *tops.iter().min().unwrap();
    let mut sorted = tops.clone();
    sorted.sort_unstable();
    let usual = sorted[sorted.len() / 2];
    // 6 of 80 GiB are some 13 of 180 pixels; the waves of the lane are 4.
    assert!(usual - highest >= 8, "{highest} {usual}");
    assert!(
        sorted[sorted.len() / 20] > highest,
        "a peak is one column, not many"
    );
    browser.quiet();
}

#[test]
fn a_figure_opens_its_source_by_keyboard_and_gives_the_focus_back() {
    let Some(mut browser) = shown(test_name!(), &plain()) else {
        return;
    };
    let drawer = "document.getElementById('report-drawer')";
    for opener in [
        "document.querySelector('#breakdown_parts a.sourced')",
        "document.querySelector('.picture .mark[data-source]')",
    ] {
        browser.value(&format!("{opener}.focus()"));
        browser.key("Enter", "Enter", "\r");
        browser.settle();
        let said = browser.value(&format!("{drawer}.open && {drawer}.innerText"));
        let said = said.as_str().expect("the drawer is open").to_owned();
        for words in [
            "Model weights, GPU 0",
            "14484777861 bytes",
            "gpu_model_runner.py:2653",
            "engine.log, line 212",
            "high_from_vllm_logs",
        ] {
            assert!(said.contains(words), "{words} in {said}");
        }
        assert_eq!(
            browser.value(&format!("{drawer}.contains(document.activeElement)")),
            json!(true)
        );
        browser.picture("drawer");
        browser.key("Escape", "Escape", "");
        browser.settle();
        assert_eq!(browser.value(&format!("{drawer}.open")), json!(false));
        assert_eq!(
            browser.value(&format!("document.activeElement === {opener}")),
            json!(true)
        );
    }
    browser.quiet();
}

#[test]
fn a_figure_with_a_source_has_a_visible_icon_and_a_name() {
    let Some(mut browser) = shown(test_name!(), &plain()) else {
        return;
    };
    let icon = browser.value(
        "(() => { const a = document.querySelector('#breakdown_parts a.sourced');
            const icon = getComputedStyle(a, '::after');
            return [a.getAttribute('aria-label'), a.tabIndex, icon.display, parseFloat(icon.width)]; })()",
    );
    assert_eq!(icon[0], json!("13.49, source of Model weights, GPU 0"));
    assert_eq!((&icon[1], &icon[2]), (&json!(0), &json!("inline-block")));
    assert!(icon[3].as_f64().unwrap() > 8.0, "{icon}");
    browser.quiet();
}

/// Fifteen columns: names, figures, and an id of each cell.
fn cells_grid() -> Grid {
    let words = ["cell", "model", "engine", "status"];
    let figures = [
        "prompt tokens",
        "batch size",
        "peak, GiB",
        "weights, GiB",
        "KV pool, GiB",
        "activations, GiB",
        "overhead, GiB",
        "unexplained, GiB",
        "throughput, tokens/s",
        "mean latency, ms",
        "mean time to first token, ms",
    ];
    let column = |title: &str, numeric| TableColumn {
        title: title.into(),
        key: title.replace(' ', "_"),
        numeric,
        is_share: false,
    };
    let columns = words.map(|w| column(w, false)).into_iter();
    let row = |n: usize| {
        let words = [
            format!("12b1238b9fb{n}-qwen3-8b-sim-in128-out128-b1"),
            "qwen3-8b".into(),
            "vLLM 0.32".into(),
            if n == 0 { "failed" } else { "done" }.into(),
        ];
        let figures = (0..figures.len()).map(|i| {
            let v = 1199.5 + (n * (i + 1)) as f64;
            TableCell::number_cell(v, format!("{v:.1}"))
        });
        words
            .map(|w: String| TableCell::text_cell(w))
            .into_iter()
            .chain(figures)
            .collect()
    };
    Grid {
        id: "cells".into(),
        caption: "All cells".into(),
        columns: columns.chain(figures.map(|f| column(f, true))).collect(),
        rows: (0..4).map(row).collect(),
    }
}

#[test]
fn figures_of_a_wide_table_are_in_view_at_1280_pixels() {
    let report = Report {
        chapters: vec![Chapter {
            id: "sweep".into(),
            title: "Sweep".into(),
            blocks: vec![ContentBlock::Table(cells_grid())],
            ..Chapter::default()
        }],
        ..Report::default()
    };
    let Some(mut browser) = shown(test_name!(), &report) else {
        return;
    };
    browser.command(
        "Emulation.setDeviceMetricsOverride",
        json!({ "width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": false }),
    );
    browser.settle();
    let heads = browser.value(
        "(() => { const box = document.querySelector('#cells .box');
            const edge = box.getBoundingClientRect().left + box.clientWidth + 1;
            return [...box.querySelectorAll('thead th')].map(h =>
                [h.textContent.trim(), h.getBoundingClientRect().right <= edge]); })()",
    );
    let heads: Vec<(String, bool)> = serde_json::from_value(heads).unwrap();
    let titles: Vec<&str> = heads.iter().map(|h| h.0.as_str()).collect();
    assert_eq!((titles[0], titles[12]), ("status", "cell"), "{titles:?}");
    assert!(heads[..12].iter().all(|h| h.1), "{heads:?}");
    let same = browser.value("document.querySelector('#cells .same').textContent");
    assert_eq!(
        same,
        json!("Same in all rows: model qwen3-8b, engine vLLM 0.32")
    );
    browser.quiet();
}

#[test]
fn tables_sort_as_numbers_and_what_is_not_known_stays_last() {
    let Some(mut browser) = shown(test_name!(), &plain()) else {
        return;
    };
    let column =
        "[...document.querySelectorAll('#sweep_cells tbody tr')].map(r => r.cells[2].textContent)";
    let sort = "[...document.querySelectorAll('#sweep_cells th')][2].querySelector('button')";
    browser.value(&format!("{sort}.focus()"));
    for (down, expected) in [(false, "20.00"), (true, "72.06")] {
        browser.key("Enter", "Enter", "\r");
        let cells = browser.value(column);
        let cells: Vec<String> = serde_json::from_value(cells).unwrap();
        assert_eq!(cells[0], expected);
        assert!(cells[39].contains("ran out of memory"), "{cells:?}");
        let known: Vec<f64> = cells.iter().map_while(|c| c.parse().ok()).collect();
        assert_eq!(known.len(), 32);
        assert!(
            known.is_sorted_by(|a, b| if down { a >= b } else { a <= b }),
            "{known:?}"
        );
    }
    browser.quiet();
}

#[test]
fn hostile_texts_do_nothing() {
    let attack = |text: &str| {
        format!(
            "{text}</script></style></title></svg><script>window.ran=1</script><img src=\"http://192.0.2.1/x\" onerror=\"window.ran=1;alert(1)\"><svg onload=alert(1)>\u{202e}txet"
        )
    };
    let mut hostile = report(&attack, 20);
    hostile.chapters[0]
        .blocks
        .push(ContentBlock::Text("<b>".repeat(400_000)));
    let Some(mut browser) = shown(test_name!(), &hostile) else {
        return;
    };
    assert_eq!(browser.value("window.ran ?? null"), Value::Null);
    assert_eq!(
        browser.value("document.querySelectorAll('img, script[src], iframe, main b').length"),
        json!(0)
    );
    let said = browser.value("document.querySelector('h1').textContent");
    assert!(
        said.as_str().unwrap().contains("<img src="),
        "shown as words: {said}"
    );
    point(&mut browser, 0.5);
    browser.value("document.querySelector('a.sourced').click()");
    browser.settle();
    assert_eq!(browser.value("window.ran ?? null"), Value::Null);
    browser.picture("hostile");
    browser.quiet();
}

#[test]
fn dark_narrow_and_on_paper() {
    let Some(mut browser) = shown(test_name!(), &plain()) else {
        return;
    };
    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = browser.value(ground);
    browser.picture("light");
    browser.command(
        "Emulation.setEmulatedMedia",
        json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] }),
    );
    browser.settle();
    let dark = browser.value(ground);
    assert_ne!(light, dark);
    browser.picture("dark");
    browser.value("document.querySelector('.theme').click()");
    assert_eq!(browser.value(ground), light, "the button turns it");
    browser.command("Emulation.setEmulatedMedia", json!({ "features": [] }));

    browser.command(
        "Emulation.setDeviceMetricsOverride",
        json!({ "width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": true }),
    );
    browser.settle();
    assert_eq!(
        browser.value("document.documentElement.scrollWidth"),
        json!(400),
        "nothing sticks out"
    );
    browser.picture("narrow");
    browser.command("Emulation.clearDeviceMetricsOverride", json!({}));

    let pdf = browser.command("Page.printToPDF", json!({ "printBackground": true }));
    let pdf = pdf["data"].as_str().unwrap();
    assert!(pdf.starts_with("JVBERi0"), "a PDF");
    browser.keep("print.pdf", pdf);
    browser.quiet();
}

#[test]
fn the_page_says_the_same_without_scripts() {
    if !have(test_name!(), &[Need::Chromium]) {
        return;
    }
    let mut browser = Browser::start();
    std::fs::write(
        browser.folder().join("report.html"),
        written("html", &plain()),
    )
    .unwrap();
    browser.command(
        "Emulation.setScriptExecutionDisabled",
        json!({ "value": true }),
    );
    browser.open("report.html");
    // The tree is asked for, because no script runs.
    browser.lay_out_all();
    let snapshot = browser.command(
        "DOMSnapshot.captureSnapshot",
        json!({ "computedStyles": [] }),
    );
    let shown = snapshot["documents"][0]["layout"]["text"]
        .as_array()
        .unwrap();
    let strings = snapshot["strings"].as_array().unwrap();
    let words: Vec<&str> = shown
        .iter()
        .filter_map(|i| strings.get(usize::try_from(i.as_i64()?).ok()?)?.as_str())
        .collect();
    let words = words.join(" ");
    for expected in [
        "Memory over time",
        "out of memory in repeat 2",
        "KV cache pool",
        "52.18",
        "cell-039",
    ] {
        assert!(words.contains(expected), "{expected}");
    }
    browser.picture("unscripted");
    browser.quiet();
}

/// A report of documents, by kind.
fn report_of(documents: Vec<(String, Value)>) -> Report {
    let mut material = Material::default();
    for (kind, document) in documents {
        let stored = StoredDocument {
            name: format!("{kind}.json"),
            document,
        };
        assert!(material.add_document(&kind, stored).is_none(), "{kind}");
    }
    assert!(material.unread.is_empty(), "{:?}", material.unread);
    build_report(Vec::new(), &material)
}

/// How full a device was, as documents of this release have it.
fn device_use() -> Value {
    json!({"label": "Container", "used_bytes": 96_000_000u64, "total_bytes": 128_000_000u64})
}

/// The pages that a person must read in five seconds. Documents of older releases get the use of a device.
fn first_screens() -> Vec<(&'static str, Report)> {
    let example = include_str!("../results/example/tiny-profile.json");
    let profile = || serde_json::from_str::<Profile>(example).unwrap();
    let page_of = |profile| build_report(Vec::new(), &Material::of_profile(profile));
    let mut tight = profile();
    let used = tight.fullest_device().unwrap().gauge.used_bytes;
    tight.gpu_info.devices[0].total_bytes = Some(used + used / 30);
    let mut lost = profile();
    lost.metadata.outcome =
        plimsoll::capture::RunEnd::ContainerLost("killed (exit 137): out of memory".into());
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let mut sweep = read(include_str!(
        "differential/documents/sweep-first/results.json"
    ));
    for cell in sweep["cells"].as_array_mut().unwrap() {
        cell["row"]["figures"]["fullest_device"] = device_use();
    }
    let mut experiment = read(include_str!(
        "differential/documents/experiment/experiment.json"
    ));
    for level in experiment["levels"].as_array_mut().unwrap() {
        level["fullest_device"] = device_use();
    }
    let mut load_line = read(include_str!(
        "differential/documents/loadline/loadline.json"
    ));
    for round in load_line["rounds"].as_array_mut().unwrap() {
        round["seen"]["fullest_device"] = device_use();
    }
    let ablation = read(include_str!(
        "differential/documents/ablation/ablation.json"
    ));
    let printed = |args: &[&str]| {
        let command = Command::cargo_bin("plimsoll").unwrap().args(args).output();
        serde_json::from_slice::<Value>(&command.unwrap().stdout).unwrap()
    };
    let estimate = printed(&["estimate", "Qwen/Qwen3-32B", "--gpu", "L4", "--json"]);
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.json");
    std::fs::write(&other, serde_json::to_vec(&tight).unwrap()).unwrap();
    let first = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/results/example/tiny-profile.json"
    );
    let compare = printed(&["compare", first, &other.display().to_string(), "--json"]);
    let kinds = |kinds: &[&Value]| {
        let each = kinds
            .iter()
            .map(|d| (d["document"].as_str().unwrap().to_owned(), (*d).clone()));
        report_of(each.collect())
    };
    vec![
        ("profile", page_of(profile())),
        ("tight", page_of(tight)),
        ("out-of-memory", page_of(lost)),
        ("sweep", kinds(&[&sweep])),
        ("experiment", kinds(&[&experiment])),
        ("load-line", kinds(&[&load_line])),
        ("compare", kinds(&[&compare])),
        ("estimate", kinds(&[&estimate])),
        (
            "mixed",
            kinds(&[&ablation, &experiment, &load_line, &sweep]),
        ),
    ]
}

/// Verdict, gauge and main figures are the last things on a terminal of 80 cells and 24 lines.
#[test]
fn the_answer_is_on_the_last_lines_of_a_terminal() {
    for (name, report) in first_screens() {
        let page = terminal_page(&report, plain_text(true, 80));
        let last: Vec<&str> = page.lines().rev().take(24).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join(" ");
        let words = last.split_whitespace().collect::<Vec<_>>().join(" ");
        let answer = report.answer.as_ref().unwrap();
        assert!(words.contains(&answer.verdict), "{name}: {page}");
        let gauge = answer
            .gauge
            .as_ref()
            .unwrap_or_else(|| panic!("{name}: no gauge"));
        let percent = format!("{:.0} % of", gauge.used_percent());
        assert!(words.contains(&percent), "{name}: {percent}: {page}");
        for figure in &answer.figures {
            assert!(
                words.contains(&figure.value.text),
                "{name}: {figure:?}: {page}"
            );
        }
        for line in page.lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
    }
}

#[test]
fn the_answer_is_on_the_first_screen_of_every_kind() {
    if !have(test_name!(), &[Need::Chromium]) {
        return;
    }
    let pages = first_screens();
    for (name, report) in pages {
        let mut browser = shown(test_name!(), &report).expect("a browser");
        browser.command(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": false }),
        );
        for theme in ["light", "dark"] {
            browser.command(
                "Emulation.setEmulatedMedia",
                json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] }),
            );
            browser.settle();
            let outside = browser.value(
                "[...document.querySelectorAll('h1, #answer .verdict, #answer .gauge, #answer .cards')]
                    .filter(e => { const b = e.getBoundingClientRect();
                        return b.width === 0 || b.bottom > 800 || b.right > 1280; })
                    .map(e => e.className || e.tagName)",
            );
            assert_eq!(outside, json!([]), "{name}, {theme}");
            for part in ["h1", "#answer .verdict", "#answer .gauge"] {
                let count = format!("document.querySelectorAll('{part}').length");
                assert_eq!(browser.value(&count), json!(1), "{name}: {part}");
            }
            // An estimate and a comparison have their figure in the verdict.
            let figure = browser.value(
                "/[0-9]/.test(document.querySelector('#answer .cards, #answer .verdict').textContent)",
            );
            assert_eq!(figure, json!(true), "{name}: the main figure");
            let unreachable = browser.value(
                "[...document.querySelectorAll('a, button, summary, canvas, [role=button], .mark[data-source]')]
                    .filter(e => e.tabIndex < 0).map(e => e.outerHTML.slice(0, 80))",
            );
            assert_eq!(unreachable, json!([]), "by keyboard: {name}");
            browser.picture(&format!("{name}-{theme}"));
        }
        browser.quiet();
    }
}
