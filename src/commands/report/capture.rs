//! What the capture beside a profile adds to it: its samples, and where the words of its figures
//! stand.

use crate::capture::{AtNs, Capture, LineSource, LogLine, Mode};
use crate::engine::facts::{Severity, StepMark};
use crate::engine::{EngineId, LogParser, parser_of};
use crate::profile::Profile;
use crate::report::chart::ChartTimeline;
use crate::report::lanes::{CaptureLog, of_capture};
use crate::store::StoredCapture;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Words that are looked for in a log at most: a profile has some dozens.
const MOST_WORDS: usize = 200;
/// Shorter words stand everywhere.
const SHORTEST: usize = 12;

/// Reads the capture of a profile: its timeline, and where the words of the profile's figures stand. `None` where it is
/// not there or not whole.
pub(in crate::commands) fn read_beside(
    file: &Path,
    profile: &Profile,
    most: usize,
) -> Option<(ChartTimeline, BTreeMap<String, String>)> {
    let stored = StoredCapture::open(file).ok()?;
    let samples = stored.read_samples().ok()?;
    let mut reader = CaptureReader::new(&stored.capture, profile);
    for (i, line) in stored.read_lines().ok().into_iter().flatten().enumerate() {
        reader.take_line(i + 1, &line);
    }
    reader.search_endpoints();
    let log = CaptureLog {
        steps: reader.steps(),
        findings: reader.placed_findings(),
    };
    let timeline = of_capture(&stored.capture, samples, &log, profile, most);
    let places = reader.found.into_iter();
    let places = places.map(|(words, (place, _))| (words, place));
    Some((timeline, places.collect()))
}

/// Goes through the log once: the engine's milestones, and where quoted words stand.
struct CaptureReader<'a> {
    capture: &'a Capture,
    profile: &'a Profile,
    parser: Option<Box<dyn LogParser>>,
    /// Source of the engine's own lines.
    engine: LineSource,
    sought: Vec<String>,
    found: BTreeMap<String, (String, Option<AtNs>)>,
}

impl<'a> CaptureReader<'a> {
    fn new(capture: &'a Capture, profile: &'a Profile) -> CaptureReader<'a> {
        let quotes = (profile.evidence.iter().map(|e| e.quote.as_str()))
            .chain(profile.findings.iter().filter_map(|f| f.quote.as_deref()));
        let words = quotes.flat_map(|quote| quote.split(" | "));
        let words = words.filter(|words| words.len() >= SHORTEST);
        let words: BTreeSet<String> = words.map(str::to_owned).collect();
        // The bench's own engine, of the repeat that peaked.
        let bench = capture.execs.iter().position(|e| {
            capture.mode == Mode::Idle
                && e.repeat == profile.memory_breakdown.repeat
                && e.repeat.is_some()
        });
        CaptureReader {
            capture,
            profile,
            parser: EngineId::from_name(&capture.engine).ok().map(parser_of),
            engine: bench.map_or(LineSource::Container, |i| LineSource::Exec(i as u32)),
            sought: words.into_iter().take(MOST_WORDS).collect(),
            found: BTreeMap::new(),
        }
    }

    fn take_line(&mut self, number: usize, line: &LogLine) {
        if line.source == self.engine {
            if let Some(parser) = &mut self.parser {
                parser.line(line.text.as_bytes(), Some(line.at_ns));
            }
        }
        let found = &mut self.found;
        self.sought.retain(|words| {
            let here = line.text.contains(words.as_str());
            if here {
                let second = line.at_ns as f64 / 1e9;
                let place = format!("log.txt, line {number}, second {second:.3}");
                found.insert(words.clone(), (place, Some(line.at_ns)));
            }
            !here
        });
    }

    /// Words that no line has: an endpoint may have reported them.
    fn search_endpoints(&mut self) {
        let found = &mut self.found;
        for words in &self.sought {
            let probe = self.capture.probes.iter().find(|p| p.body.contains(words));
            if let Some(probe) = probe {
                let (path, second) = (&probe.path, probe.at_ns as f64 / 1e9);
                let place = format!("capture.json, {path} at second {second:.3}");
                found.insert(words.clone(), (place, None));
            }
        }
    }

    fn steps(&self) -> Vec<StepMark> {
        let parser = self.parser.as_ref();
        parser.map(|p| p.report().steps).unwrap_or_default()
    }

    /// Findings with a line that has a moment.
    fn placed_findings(&self) -> Vec<(AtNs, String, bool)> {
        let findings = self.profile.findings.iter();
        let findings = findings.filter(|f| f.severity > Severity::Info);
        let placed = findings.filter_map(|f| {
            let words = f.quote.as_deref()?.split(" | ").next()?;
            let (_, at) = self.found.get(words)?;
            Some(((*at)?, f.code.clone(), f.severity == Severity::Error))
        });
        placed.collect()
    }
}
