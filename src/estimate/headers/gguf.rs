//! The header of a GGUF file, versions 2 and 3: what the model is, and its tensors.
//!
//! Source: ggml's docs/gguf.md, 2025.

use super::{HeaderError, Stored, shown};
use crate::estimate::format::Block;
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Most tensors of a file.
const MOST_TENSORS: u64 = 1 << 20;
/// Most settings of a file.
const MOST_SETTINGS: u64 = 1 << 16;
/// Longest name of a setting or of a tensor, bytes.
const LONGEST_NAME: u64 = 1 << 16;
/// Longest text that is kept, bytes.
const LONGEST_TEXT: u64 = 1 << 16;
/// Longest list that is kept: one entry for each layer. Of longer ones only the length is.
const LONGEST_LIST: u64 = 4096;
/// Most entries of all lists that are kept: more would take far more memory than the file.
const MOST_ENTRIES: u64 = 1 << 20;
/// Most dimensions of a tensor, as ggml has them.
const MOST_DIMENSIONS: u32 = 8;
/// Deepest list of lists.
const DEEPEST: u32 = 4;

/// A header that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Gguf {
    /// The settings, by their keys. A list that is too long to keep is `{"length": n}`.
    pub settings: Map<String, Value>,
    /// The tensors. Shapes are outermost first: the other way round than the file has them.
    pub tensors: Vec<Stored>,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Entries of lists that are kept so far.
    kept: u64,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], HeaderError> {
        let end = (self.at as u64).checked_add(count);
        let end = end.ok_or_else(|| HeaderError::bad("it contains an impossible length"))?;
        let short = HeaderError::Short(end);
        let to = usize::try_from(end).map_err(|_| short.clone())?;
        let taken = self.bytes.get(self.at..to).ok_or(short)?;
        self.at = to;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], HeaderError> {
        let taken = self.take(N as u64)?;
        taken
            .try_into()
            .map_err(|_| HeaderError::bad("it contains an impossible length"))
    }

    fn u32(&mut self) -> Result<u32, HeaderError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, HeaderError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Text of at most `most` bytes; longer text is left out where `cut`, else refused.
    fn text(&mut self, most: u64, cut: bool) -> Result<String, HeaderError> {
        let length = self.u64()?;
        if length > most && !cut {
            let what = format!("a name in it would have {length} bytes");
            return Err(HeaderError::bad(what));
        }
        let bytes = self.take(length)?;
        let kept = bytes.get(..most as usize).unwrap_or(bytes);
        Ok(String::from_utf8_lossy(kept).into_owned())
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<Value, HeaderError> {
        Ok(match kind {
            0 => json!(u8::from_le_bytes(self.array()?)),
            1 => json!(i8::from_le_bytes(self.array()?)),
            2 => json!(u16::from_le_bytes(self.array()?)),
            3 => json!(i16::from_le_bytes(self.array()?)),
            4 => json!(self.u32()?),
            5 => json!(i32::from_le_bytes(self.array()?)),
            6 => json!(f32::from_le_bytes(self.array()?)),
            7 => json!(self.array::<1>()?[0] != 0),
            8 => json!(self.text(LONGEST_TEXT, true)?),
            9 => self.list(depth)?,
            10 => json!(self.u64()?),
            11 => json!(i64::from_le_bytes(self.array()?)),
            12 => json!(f64::from_le_bytes(self.array()?)),
            other => {
                let what = format!("a setting in it has the type {other}, which is not known");
                return Err(HeaderError::bad(what));
            }
        })
    }

    fn list(&mut self, depth: u32) -> Result<Value, HeaderError> {
        if depth >= DEEPEST {
            return Err(HeaderError::bad("its lists are nested too deeply"));
        }
        let kind = self.u32()?;
        let length = self.u64()?;
        let size = match kind {
            0 | 1 | 7 => Some(1),
            2 | 3 => Some(2),
            4..=6 => Some(4),
            10..=12 => Some(8),
            _ => None,
        };
        if length <= LONGEST_LIST && self.kept + length <= MOST_ENTRIES {
            self.kept += length;
            // Not `with_capacity`: the length is the file's own, which may be false.
            let mut list = Vec::new();
            for _ in 0..length {
                list.push(self.value(kind, depth + 1)?);
            }
            return Ok(Value::Array(list));
        }
        match size {
            Some(size) => {
                let bytes = length.checked_mul(size);
                self.take(
                    bytes.ok_or_else(|| HeaderError::bad("it contains an impossible length"))?,
                )?;
            }
            None if kind == 8 => {
                for _ in 0..length {
                    let text = self.u64()?;
                    self.take(text)?;
                }
            }
            None => return Err(HeaderError::bad("a list in it is too long")),
        }
        Ok(json!({ "length": length }))
    }
}

/// Reads a file's header from its first bytes. `file`: the file's size, where it is known.
///
/// # Errors
///
/// `Short` where more bytes are needed; a header that is of another kind, or with tensors that overlap, leave the
/// file or have types that are not known.
pub fn parse(start: &[u8], file: Option<u64>) -> Result<Gguf, HeaderError> {
    let mut reader = Reader {
        bytes: start,
        at: 0,
        kept: 0,
    };
    if reader.array::<4>()? != *b"GGUF" {
        return Err(HeaderError::bad("not a GGUF file"));
    }
    let version = reader.u32()?;
    if !(2..=3).contains(&version) {
        let what =
            format!("it is GGUF of version {version}: versions 2 and 3, little-endian, are known");
        return Err(HeaderError::bad(what));
    }
    let count = reader.u64()?;
    let settings_count = reader.u64()?;
    if count > MOST_TENSORS || settings_count > MOST_SETTINGS {
        let what = format!("it would have {count} tensors and {settings_count} settings");
        return Err(HeaderError::bad(what));
    }
    let mut settings = Map::new();
    for _ in 0..settings_count {
        let key = reader.text(LONGEST_NAME, false)?;
        let kind = reader.u32()?;
        let value = reader.value(kind, 0)?;
        if settings.insert(key.clone(), value).is_some() {
            let what = format!("the setting `{}` is given twice", shown(&key));
            return Err(HeaderError::bad(what));
        }
    }
    let aligned = settings.get("general.alignment").and_then(Value::as_u64);
    let aligned = aligned.unwrap_or(32);
    if aligned == 0 || aligned > 1 << 20 {
        return Err(HeaderError::bad("its alignment is invalid"));
    }
    let mut tensors = Vec::new();
    let mut places = Vec::new();
    let mut names = HashSet::new();
    for _ in 0..count {
        let (tensor, offset) = tensor(&mut reader)?;
        let bad = |what: &str| HeaderError::bad(format!("tensor `{}` {what}", shown(&tensor.name)));
        if !names.insert(tensor.name.clone()) {
            return Err(bad("is listed twice"));
        }
        if offset % aligned != 0 {
            return Err(bad("begins where none can"));
        }
        let end = offset.checked_add(tensor.bytes);
        let end = end.ok_or_else(|| bad("is longer than any file"))?;
        places.push((offset, end, tensors.len()));
        tensors.push(tensor);
    }
    let data = (reader.at as u64).checked_next_multiple_of(aligned);
    let data = file.zip(data).map(|(size, at)| size.saturating_sub(at));
    places.sort_unstable();
    for (at, &(begin, end, tensor)) in places.iter().enumerate() {
        let bad = |what: &str| {
            let name = tensors.get(tensor).map_or("", |t| t.name.as_str());
            HeaderError::bad(format!("tensor `{}` {what}", shown(name)))
        };
        if data.is_some_and(|size| end > size) {
            return Err(bad("ends beyond the end of the file"));
        }
        if at > 0 && begin < places[at - 1].1 {
            return Err(bad("overlaps another"));
        }
    }
    Ok(Gguf { settings, tensors })
}

/// One entry of the list of tensors, and where its bytes begin.
fn tensor(reader: &mut Reader<'_>) -> Result<(Stored, u64), HeaderError> {
    let name = reader.text(LONGEST_NAME, false)?;
    let bad = |what: String| HeaderError::bad(format!("tensor `{}` {what}", shown(&name)));
    let dimensions = reader.u32()?;
    if dimensions > MOST_DIMENSIONS {
        return Err(bad(format!("has {dimensions} dimensions")));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(reader.u64()?);
    }
    let kind = reader.u32()?;
    let block = Block::of_number(kind)
        .ok_or_else(|| bad(format!("has the type {kind}, which is not known")))?;
    let offset = reader.u64()?;
    let row = shape.first().copied().unwrap_or(1);
    if row % block.values() != 0 {
        return Err(bad(format!(
            "has rows that are not a multiple of {}'s blocks",
            block.name()
        )));
    }
    let per = block.bytes(block.values());
    let rows = shape
        .iter()
        .skip(1)
        .try_fold(1u64, |n, d| n.checked_mul(*d));
    let bytes = rows
        .and_then(|rows| rows.checked_mul(row / block.values()))
        .and_then(|blocks| blocks.checked_mul(per));
    let bytes = bytes.ok_or_else(|| bad("has more values than can be counted".to_owned()))?;
    shape.reverse();
    let stored = Stored {
        name,
        dtype: block.name().to_owned(),
        shape,
        bytes,
    };
    Ok((stored, offset))
}

#[cfg(test)]
#[path = "gguf_tests.rs"]
pub(crate) mod tests;
