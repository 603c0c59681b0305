//! Reads the headers of a model's files: of `*.safetensors` in a folder, or of one GGUF file. Never the weights.

use crate::estimate::headers::{HeaderError, Headers, gguf, safetensors};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// How much of a GGUF file is read at first, bytes; vocabularies make most headers a few MiB long.
const FIRST: u64 = 4 << 20;
/// Longest GGUF header that is read, bytes.
const LONGEST_GGUF: u64 = 256 << 20;
/// Longest index that is read, bytes.
const LONGEST_INDEX: u64 = 128 << 20;
/// Most files of a folder that are looked at.
const MOST_FILES: usize = 10_000;

/// Why no header can be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = path.display())]
pub struct ReadError {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub source: Cause,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The system refuses.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Its content is not a header.
    #[error("{0}")]
    Header(#[from] HeaderError),
    /// Nothing to read is there.
    #[error("the folder has no *.safetensors files")]
    Empty,
}

/// The first `most` bytes of a file, and its size.
fn start(file: &mut File, most: u64) -> io::Result<(Vec<u8>, u64)> {
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(most).read_to_end(&mut bytes)?;
    Ok((bytes, about.len()))
}

/// Opens without waiting for a pipe's other end.
fn open(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(path)
}

/// The header of one safetensors file, added to `all`.
fn one(path: &Path, all: &mut Headers) -> Result<(), Cause> {
    let mut file = open(path)?;
    let (mut bytes, size) = start(&mut file, 8)?;
    let length = safetensors::length(&bytes)?;
    if length + 8 > size {
        return Err(HeaderError::Short(length + 8).into());
    }
    file.take(length).read_to_end(&mut bytes)?;
    all.tensors.extend(safetensors::parse(&bytes, Some(size))?);
    Ok(())
}

/// The files of a folder: those that its index lists, else all but duplicates in another layout.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Cause> {
    let index = folder.join("model.safetensors.index.json");
    if index.exists() {
        let (text, _) = start(&mut open(&index)?, LONGEST_INDEX)?;
        let names = safetensors::index_files(&text)?;
        return Ok(names.into_iter().map(|name| folder.join(name)).collect());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(MOST_FILES) {
        let path = entry?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        if name.ends_with(".safetensors") && !name.starts_with("consolidated") {
            found.push(path);
        }
    }
    found.sort();
    // `consolidated.safetensors` alone is the model itself.
    if found.is_empty() {
        let alone = folder.join("consolidated.safetensors");
        found.extend(alone.exists().then_some(alone));
    }
    // A whole file beside its own parts would count everything twice.
    let parts = |p: &&PathBuf| p.to_string_lossy().contains("-of-");
    if found.len() > 1 && found.iter().any(|p| parts(&p)) {
        let whole = folder.join("model.safetensors");
        found.retain(|p| *p != whole);
    }
    Ok(found)
}

/// Reads the headers of a folder's safetensors files.
///
/// # Errors
///
/// The file that cannot be read, and why.
pub fn read_folder(folder: &Path) -> Result<Headers, ReadError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| ReadError { path, source }
    };
    let mut all = Headers {
        source: folder.display().to_string(),
        ..Headers::default()
    };
    let found = files(folder).map_err(at(folder))?;
    if found.is_empty() {
        return Err(at(folder)(Cause::Empty));
    }
    for path in found {
        one(&path, &mut all).map_err(at(&path))?;
    }
    Ok(all)
}

/// Reads the header of a GGUF file.
///
/// # Errors
///
/// Why it cannot be read.
pub fn read_gguf(path: &Path) -> Result<(gguf::Gguf, Headers), ReadError> {
    let read = || -> Result<gguf::Gguf, Cause> {
        let mut file = open(path)?;
        let (mut bytes, size) = start(&mut file, FIRST)?;
        loop {
            match gguf::parse(&bytes, Some(size)) {
                Err(HeaderError::Short(needed))
                    if needed <= size.min(LONGEST_GGUF) && (bytes.len() as u64) < size =>
                {
                    // Twice as much each time: every attempt begins anew.
                    let more = (bytes.len() as u64).max(needed - bytes.len() as u64);
                    let most = LONGEST_GGUF - bytes.len() as u64;
                    let got = file.by_ref().take(more.min(most)).read_to_end(&mut bytes)?;
                    if got == 0 {
                        return Err(HeaderError::Short(needed).into());
                    }
                }
                other => return Ok(other?),
            }
        }
    };
    let read = read().map_err(|source| ReadError {
        path: path.to_owned(),
        source,
    })?;
    let headers = Headers {
        tensors: read.tensors.clone(),
        gguf: true,
        source: path.display().to_string(),
    };
    Ok((read, headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, tensor: &str, data: usize) {
        let json = format!(
            r#"{{"{tensor}":{{"dtype":"U8","shape":[{data}],"data_offsets":[0,{data}]}}}}"#
        );
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        std::fs::write(folder.join(name), bytes).unwrap();
    }

    #[test]
    fn a_folders_files_are_read_each_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        file(at, "model-1-of-2.safetensors", "a", 8);
        file(at, "model-2-of-2.safetensors", "b", 16);
        file(at, "model.safetensors", "a", 8);
        file(at, "consolidated.safetensors", "c", 24);
        let sizes = || {
            let read = read_folder(at).unwrap().tensors;
            read.iter().map(|t| t.bytes).collect::<Vec<_>>()
        };
        assert_eq!(sizes(), [8, 16]);
        let index = r#"{"weight_map":{"b":"model-2-of-2.safetensors"}}"#;
        std::fs::write(at.join("model.safetensors.index.json"), index).unwrap();
        assert_eq!(sizes(), [16]);
    }

    #[test]
    fn an_unreadable_file_is_reported_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let empty = read_folder(at).unwrap_err().to_string();
        assert!(empty.contains("no *.safetensors files"), "{empty}");
        std::fs::write(at.join("model.safetensors"), 500u64.to_le_bytes()).unwrap();
        let cut = read_folder(at).unwrap_err().to_string();
        assert!(
            cut.contains("model.safetensors") && cut.contains("508 bytes"),
            "{cut}"
        );
        let gguf = at.join("model.gguf");
        std::fs::write(&gguf, b"GGUF\x03\0\0\0").unwrap();
        assert!(
            read_gguf(&gguf)
                .unwrap_err()
                .to_string()
                .contains("within its header")
        );
        assert!(
            read_gguf(at)
                .unwrap_err()
                .to_string()
                .contains("not a regular file")
        );
    }
}
