//! The evidence of one container or log: judged as it is read, and kept where a bundle is asked for.

use crate::engine::diagnosis::{CaseFacts, CauseFinder, Diagnosis, EvidenceSource};
use crate::error::Failure;
use crate::redact::Redactor;
use crate::store::{bounded, write_redacted};
use serde_json::Value;
use std::io::{self, Read};
use std::path::Path;

/// Entries of a bundle.
const FACTS: &str = "facts.json";
const LOG: &str = "log.txt";
const DOCKER: &str = "docker.txt";
const KERNEL: &str = "kernel.txt";
const ANSWER: &str = "why.json";
/// Largest entry of a bundle that is read, bytes.
const LONGEST_ENTRY: u64 = 128 << 20;
/// Where a tar archive has its magic word.
const TAR_MAGIC: std::ops::Range<usize> = 257..262;

/// Evidence that is being read.
pub struct Evidence {
    finder: CauseFinder,
    facts: CaseFacts,
    /// Texts by entry of the bundle; `None` where none is asked for.
    kept: Option<[(&'static str, String); 3]>,
    /// How the container and its host stand now.
    pub now: Vec<String>,
    /// What could not be read.
    pub unread: Vec<String>,
}

/// What a bundle is made of.
pub struct KeptEvidence {
    facts: CaseFacts,
    texts: [(&'static str, String); 3],
}

impl Evidence {
    /// Evidence of a container with `facts`, kept as well with `keep`.
    pub fn new(facts: CaseFacts, keep: bool) -> Evidence {
        Evidence {
            finder: CauseFinder::new(facts.clone()),
            facts,
            kept: keep.then(|| [LOG, DOCKER, KERNEL].map(|name| (name, String::new()))),
            now: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Takes a line.
    pub fn take(&mut self, source: EvidenceSource, line: &[u8]) {
        self.finder.take(source, line);
        let entry = match source {
            EvidenceSource::Log => LOG,
            EvidenceSource::Kernel => KERNEL,
            EvidenceSource::Docker | EvidenceSource::Fact => DOCKER,
        };
        let kept = self.kept.iter_mut().flatten();
        for (_, text) in kept.filter(|(name, _)| *name == entry) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
    }

    /// The cause that it shows.
    pub fn conclude(self) -> (Diagnosis, Option<KeptEvidence>) {
        let mut found = self.finder.conclude();
        found.now = self.now;
        found.unread = self.unread;
        let facts = self.facts;
        (found, self.kept.map(|texts| KeptEvidence { facts, texts }))
    }
}

impl KeptEvidence {
    /// Writes the bundle: a tar archive that appears under its name when it is whole.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_bundle(&self, file: &Path, answer: &Diagnosis) -> anyhow::Result<()> {
        if file.is_dir() {
            let text = format!(
                "`{}` is a folder, and --bundle takes a file",
                file.display()
            );
            return Err(Failure::usage(text)
                .hint("name the archive: --bundle why.tar")
                .into());
        }
        // The texts were redacted as they were read; JSON is redacted by its values, before it is text.
        let redactor = Redactor::default();
        let facts = CaseFacts {
            facts: (self.facts.facts.iter())
                .map(|fact| redactor.redact_text(fact).into_owned())
                .collect(),
            ..self.facts.clone()
        };
        let json = |value: &Value| serde_json::to_string_pretty(value).map(|text| text + "\n");
        let documents = [
            (ANSWER, json(&serde_json::to_value(answer)?)?),
            (FACTS, json(&facts.to_document())?),
        ];
        let mut archive = tar::Builder::new(Vec::new());
        for (name, text) in documents.iter().chain(&self.texts) {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            archive.append_data(&mut header, name, text.as_bytes())?;
        }
        Ok(write_redacted(file, &archive.into_inner()?)?)
    }
}

/// Whether a file is a tar archive.
pub fn is_bundle(file: &Path) -> bool {
    let beginning = crate::bounded::read_beginning(file, TAR_MAGIC.end as u64);
    beginning.is_ok_and(|bytes| bytes.get(TAR_MAGIC) == Some(b"ustar"))
}

/// Reads a bundle.
///
/// # Errors
/// Not an archive of `why --bundle`, or unreadable.
pub fn read_bundle(file: &Path) -> Result<Evidence, Failure> {
    let unreadable = |e: io::Error| {
        Failure::environment(format!("cannot read `{}`", file.display())).caused_by(e)
    };
    let damaged = |e: io::Error| {
        Failure::environment(format!(
            "the archive `{}` is cut off or damaged",
            file.display()
        ))
        .hint("copy it again, or write it anew: `plimsoll why NAME --bundle FILE`")
        .caused_by(e)
    };
    let mut archive = tar::Archive::new(bounded::open_named(file).map_err(unreadable)?);
    let mut texts = Vec::new();
    for entry in archive.entries().map_err(damaged)?.take(16) {
        let entry = entry.map_err(damaged)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mut bytes = Vec::new();
        entry
            .take(LONGEST_ENTRY)
            .read_to_end(&mut bytes)
            .map_err(damaged)?;
        texts.push((name, bytes));
    }
    let text_of = |wanted: &str| {
        texts
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, b)| b.as_slice())
    };
    let facts = text_of(FACTS).and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    let facts = facts.ok_or_else(|| {
        Failure::usage(format!(
            "`{}` is an archive, but not one of `plimsoll why --bundle`",
            file.display()
        ))
        .hint("unpack it and name the log in it, or write one: `plimsoll why NAME --bundle FILE`")
    })?;
    let mut evidence = Evidence::new(CaseFacts::from_document(&facts).unwrap_or_default(), false);
    for (entry, source) in [
        (LOG, EvidenceSource::Log),
        (DOCKER, EvidenceSource::Docker),
        (KERNEL, EvidenceSource::Kernel),
    ] {
        let lines = text_of(entry)
            .into_iter()
            .flat_map(|bytes| bytes.split(|b| *b == b'\n'));
        lines.for_each(|line| evidence.take(source, line));
    }
    Ok(evidence)
}
