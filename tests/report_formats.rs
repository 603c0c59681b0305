//! The formats of `plimsoll report`: what each writes, and that no text of a report leaves its place.

use crate::common::reports;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use plimsoll::report::format::{ALL, ReportFormat, by_name};
use proptest::prelude::*;
use reports::{plain, report, written};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The tags of a page, each with its attributes' names, as a browser's tokenizer sees them. How many
/// there are in a drawing depends on how long its words are: there it is only said which.
#[derive(Default)]
struct Skeleton(RefCell<Vec<String>>);

impl TokenSink for Skeleton {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let Token::TagToken(tag) = token else {
            if let Token::CommentToken(_) = token {
                self.0.borrow_mut().push("comment".into());
            }
            return TokenSinkResult::Continue;
        };
        let names: Vec<&str> = tag.attrs.iter().map(|a| &*a.name.local).collect();
        let end = if tag.kind == TagKind::EndTag { "/" } else { "" };
        self.0
            .borrow_mut()
            .push(format!("{end}{} {}", tag.name, names.join(" ")));
        match (tag.kind, &*tag.name) {
            (TagKind::StartTag, "script") => TokenSinkResult::RawData(RawKind::ScriptData),
            (TagKind::StartTag, "style") => TokenSinkResult::RawData(RawKind::Rawtext),
            (TagKind::StartTag, "title") => TokenSinkResult::RawData(RawKind::Rcdata),
            _ => TokenSinkResult::Continue,
        }
    }
}

fn skeleton(html: &str) -> Vec<String> {
    let tokenizer = Tokenizer::new(Skeleton::default(), TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(html));
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    let mut tags = tokenizer.sink.0.into_inner();
    let (mut drawing, mut drawn) = (false, BTreeSet::new());
    tags.retain(|tag| {
        let edge = tag.starts_with("svg ") || tag.starts_with("/svg");
        drawing ^= edge;
        if drawing && !edge {
            drawn.insert(tag.clone());
        }
        edge || !drawing
    });
    for tag in drawn {
        let name = tag.trim_start_matches('/').split(' ').next().unwrap();
        let known = [
            "title", "desc", "defs", "pattern", "path", "g", "rect", "text", "circle",
        ];
        assert!(
            known.contains(&name) && !tag.contains(" on") && !tag.contains("href"),
            "{tag}"
        );
    }
    tags
}

/// Markdown without its code: blocks and spans of it hold any text.
fn without_code(markdown: &str) -> String {
    let (mut out, mut fence) = (String::new(), None);
    for line in markdown.lines() {
        let ticks = line.bytes().take_while(|b| *b == b'`').count();
        match fence {
            Some(open) if ticks >= open && line.trim_matches('`').is_empty() => fence = None,
            Some(_) => {}
            None if ticks >= 3 && line[ticks..] == *"text" => fence = Some(ticks),
            None => out.extend([&without_spans(line), "\n"]),
        }
    }
    assert_eq!(fence, None, "a block that does not end");
    out
}

/// The formats whose files are texts.
fn texts() -> impl Iterator<Item = &'static ReportFormat> {
    ALL.iter().filter(|f| f.format_name() != "png")
}

fn without_spans(line: &str) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find('`') {
        if rest[..at].ends_with('\\') {
            out.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        }
        out.push_str(&rest[..at]);
        let ticks = rest[at..].bytes().take_while(|b| *b == b'`').count();
        let inside = &rest[at + ticks..];
        let mut end = 0;
        loop {
            let run = &inside[end..];
            let length = run.bytes().take_while(|b| *b == b'`').count();
            match (length, run.is_empty()) {
                (_, true) => panic!("a span that does not end: {line}"),
                (n, _) if n == ticks => break,
                (0, _) => end += run.find('`').unwrap_or(run.len()),
                (n, _) => end += n,
            }
        }
        rest = &inside[end + ticks..];
    }
    out + rest
}

/// Texts that somebody would try.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<script>top=1</script>".to_owned()),
        Just("</script><img src=x onerror=alert(1)>".to_owned()),
        Just("</title></style></pre></td></svg></textarea><b>".to_owned()),
        Just("<!-- -->--!><![CDATA[]]>".to_owned()),
        Just("\" onmouseover=alert(1) x=\"' y='".to_owned()),
        Just("&lt;&#60;&".to_owned()),
        Just("\u{202e}\u{2066}\u{0}\u{1b}[2J\u{2028}\u{feff}".to_owned()),
        Just("```\n| a | b |\n***\n<details>".to_owned()),
        Just("=1+1\r\n@x,\"y".to_owned()),
        any::<String>(),
    ];
    prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A browser's tokenizer finds the same elements whatever the texts are.
    #[test]
    fn no_text_leaves_its_element_in_html(text in hostile()) {
        let harmless = skeleton(&written("html", &report(&|_| "words".into(), 3)));
        let tried = skeleton(&written("html", &report(&|_| format!("w{text}"), 3)));
        prop_assert_eq!(harmless, tried);
    }

    /// Nothing in Markdown begins a tag that the writer has not written, and no format has a
    /// character that moves a cursor or turns the reading order.
    #[test]
    fn no_format_passes_on_what_is_not_a_text(text in hostile()) {
        let tried = report(&|_| format!("w{text}"), 3);
        let md = written("md", &tried);
        let outside = without_code(&md);
        for tag in regex::Regex::new("</?[a-zA-Z!]+").unwrap().find_iter(&outside) {
            let own = ["<details", "</details", "<summary", "</summary"].contains(&tag.as_str());
            prop_assert!(own, "{}", tag.as_str());
        }
        for format in texts() {
            for file in format.render_files(&tried).unwrap() {
                let written = String::from_utf8(file.bytes).unwrap();
                let bad = |c: char| (c.is_control() && c != '\n' && c != '\r')
                    || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}');
                prop_assert!(!written.contains(bad), "{}", format.format_name());
                let name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                prop_assert!(file.stem.chars().all(name));
            }
        }
    }
}

#[test]
fn a_page_that_runs_what_it_was_told_would_be_seen() {
    let html = written("html", &plain());
    let broken = html.replace("org/model-7b", "<b>");
    assert_ne!(skeleton(&html), skeleton(&broken));
}

#[test]
fn text_reads_well() {
    insta::assert_snapshot!("txt", written("txt", &plain()));
}

#[test]
fn markdown_reads_well() {
    insta::assert_snapshot!("md", written("md", &plain()));
}

#[test]
fn a_file_for_each_table() {
    let files = by_name("csv").unwrap().render_files(&plain()).unwrap();
    let written: Vec<String> = files
        .iter()
        .map(|f| format!("--- {}.csv\n{}", f.stem, String::from_utf8_lossy(&f.bytes)))
        .collect();
    insta::assert_snapshot!("csv", written.join("\n"));
}

#[test]
fn the_page_without_style_script_data_and_drawings() {
    let html = written("html", &report(&str::to_owned, 2));
    let element =
        regex::Regex::new(r"(?s)<(style|script|script [^>]*)>.*?</(style|script)>").unwrap();
    let html = element.replace_all(&html, "<$1>…</$2>");
    // Drawings have tests of their own.
    let drawing = regex::Regex::new("(?s)<svg .*?</svg>").unwrap();
    let html = drawing.replace_all(&html, "<svg>…</svg>");
    let hash = regex::Regex::new("sha256-[A-Za-z0-9+/=]+").unwrap();
    insta::assert_snapshot!("html", hash.replace_all(&html, "sha256-…"));
}

#[test]
fn megabytes_in_one_line_are_cut() {
    let html = written("html", &report(&|_| "long ".repeat(200_000), 2));
    assert!(html.len() < 4_000_000, "{}", html.len());
    assert!(html.contains("more bytes)"));
}

#[test]
fn a_report_is_the_same_bytes_each_time() {
    for format in texts() {
        assert_eq!(
            format.render_files(&plain()).unwrap(),
            format.render_files(&plain()).unwrap()
        );
    }
}

#[test]
fn markdown_stays_under_what_github_shows() {
    let mut long = plain();
    let chapter = long.chapters[3].clone();
    for _ in 0..600 {
        long.chapters.push(chapter.clone());
    }
    let md = written("md", &long);
    assert!(md.len() < 1 << 20, "{}", md.len());
    assert!(md.contains("parts are left out"));
}
