//! The header of a safetensors file: 8 bytes of length, then JSON with each tensor's type, shape and place.
//!
//! Source: the format's description, huggingface/safetensors 0.4.

use super::{HeaderError, Stored, shown};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, de};
use std::collections::HashSet;
use std::fmt;

/// Longest header, bytes: the limit of the library itself.
pub const LONGEST: u64 = 100_000_000;
/// Most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 16;
/// Longest name of a tensor, bytes.
const LONGEST_NAME: usize = 4096;

/// The length of the JSON that follows a file's first 8 bytes.
///
/// # Errors
///
/// When there are fewer bytes, or the length is more than any file has.
pub fn length(start: &[u8]) -> Result<u64, HeaderError> {
    let first: [u8; 8] = start
        .get(..8)
        .and_then(|b| b.try_into().ok())
        .ok_or(HeaderError::Short(8))?;
    let length = u64::from_le_bytes(first);
    if length > LONGEST {
        return Err(HeaderError::bad(format!(
            "not a safetensors file: its header would have {length} bytes"
        )));
    }
    if length < 2 {
        return Err(HeaderError::bad("its header is empty"));
    }
    Ok(length)
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The entries of a header, and their names with those that come twice.
struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a map of tensors")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries, M::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    if name.len() > LONGEST_NAME {
                        return Err(de::Error::custom("a name is too long"));
                    }
                    entries.push((name, map.next_value()?));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// Reads a file's header: its first bytes, `length` and eight more. `file`: the file's size,
/// where it is known.
///
/// # Errors
///
/// A header that is cut off, no JSON, or with places that overlap, leave the file or do not fit their shapes.
pub fn parse(start: &[u8], file: Option<u64>) -> Result<Vec<Stored>, HeaderError> {
    let length = length(start)?;
    let needed = length + 8;
    let end = usize::try_from(needed).map_err(|_| HeaderError::Short(needed))?;
    let json = start.get(8..end).ok_or(HeaderError::Short(needed))?;
    tensors(json, file.map(|size| size.saturating_sub(needed)))
}

/// Reads the JSON of a header. `data`: how many bytes of tensors follow it, where that is known.
///
/// # Errors
///
/// As those of [`parse`].
pub fn tensors(json: &[u8], data: Option<u64>) -> Result<Vec<Stored>, HeaderError> {
    let Entries(entries) = crate::bounded::parse_json(json).map_err(|e| {
        HeaderError::bad(format!(
            "its header cannot be read: {}",
            shown(&e.to_string())
        ))
    })?;
    let mut names = HashSet::with_capacity(entries.len());
    let mut places = Vec::with_capacity(entries.len());
    for (name, entry) in &entries {
        let bad = |what: &str| HeaderError::bad(format!("tensor `{}` {what}", shown(name)));
        if !names.insert(name) {
            return Err(bad("is listed twice"));
        }
        let (begin, end) = entry.data_offsets;
        if begin > end {
            return Err(bad("ends before it begins"));
        }
        if data.is_some_and(|size| end > size) {
            return Err(bad("ends beyond the end of the file"));
        }
        if entry.shape.len() > MOST_DIMENSIONS {
            return Err(bad("has too many dimensions"));
        }
        let values = entry.shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
        let values = values.ok_or_else(|| bad("has more values than can be counted"))?;
        if let Some(bits) = bits(&entry.dtype) {
            let bytes = u128::from(values) * u128::from(bits);
            if bytes != u128::from(end - begin) * 8 {
                return Err(bad(
                    "has another number of bytes than its shape and type say",
                ));
            }
        }
        places.push((begin, end, name));
    }
    places.sort_unstable();
    for pair in places.windows(2) {
        if pair[1].0 < pair[0].1 {
            let what = format!("tensor `{}` overlaps another", shown(pair[1].2));
            return Err(HeaderError::bad(what));
        }
    }
    let stored = entries.into_iter().map(|(name, entry)| Stored {
        name,
        dtype: entry.dtype.chars().take(32).collect(),
        shape: entry.shape,
        bytes: entry.data_offsets.1 - entry.data_offsets.0,
    });
    Ok(stored.collect())
}

/// Bits of a value of a type; `None`: a type that is newer than this.
pub fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ"
        | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// Most files of a model.
const MOST_FILES: usize = 10_000;

/// The names of the files that `model.safetensors.index.json` lists, each once, sorted.
///
/// # Errors
///
/// When it is not such an index, or names a file outside of its folder.
pub fn index_files(text: &[u8]) -> Result<Vec<String>, HeaderError> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let index: Index = crate::bounded::parse_json(text).map_err(|e| {
        HeaderError::bad(format!(
            "the index cannot be read: {}",
            shown(&e.to_string())
        ))
    })?;
    let files: std::collections::BTreeSet<String> = index.weight_map.into_values().collect();
    for file in &files {
        let plain = !file.is_empty()
            && file.len() < 256
            && !file.contains(['/', '\\', '\0'])
            && file != ".."
            && file != ".";
        if !plain {
            let what = format!("the index names `{}`, which does not exist", shown(file));
            return Err(HeaderError::bad(what));
        }
    }
    if files.len() > MOST_FILES {
        return Err(HeaderError::bad("the index names too many files"));
    }
    Ok(files.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(json: &str) -> Vec<u8> {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        bytes
    }

    fn refused(json: &str) -> String {
        let bytes = file(json);
        let size = bytes.len() as u64 + 64;
        parse(&bytes, Some(size)).unwrap_err().to_string()
    }

    #[test]
    fn tensors_have_their_names_shapes_and_bytes() {
        let json = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[12,16]},
            "a.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#;
        let bytes = file(json);
        let tensors = parse(&bytes, Some(bytes.len() as u64 + 16)).unwrap();
        assert_eq!(tensors.len(), 2);
        let a = tensors.iter().find(|t| t.name == "a.weight").unwrap();
        assert_eq!((a.bytes, a.values(), a.float_bits()), (12, 6, Some(16)));
        assert_eq!(
            parse(&bytes[..40], None),
            Err(HeaderError::Short(bytes.len() as u64))
        );
    }

    #[test]
    fn what_lies_is_refused_with_the_tensors_name() {
        let one = |entry: &str| refused(&format!("{{\"w\":{entry}}}"));
        let lies = one(r#"{"dtype":"F16","shape":[2],"data_offsets":[0,8]}"#);
        assert!(lies.contains("`w` has another number of bytes"), "{lies}");
        let behind = one(r#"{"dtype":"U8","shape":[999],"data_offsets":[0,999]}"#);
        assert!(behind.contains("beyond the end"), "{behind}");
        let back = one(r#"{"dtype":"U8","shape":[0],"data_offsets":[5,0]}"#);
        assert!(back.contains("before it begins"), "{back}");
        let many = one(r#"{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}"#);
        assert!(many.contains("more values"), "{many}");
        let over = refused(
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}}"#,
        );
        assert!(over.contains("`b` overlaps another"), "{over}");
        let twice = refused(
            r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#,
        );
        assert!(twice.contains("listed twice"), "{twice}");
    }

    #[test]
    fn lengths_and_depths_that_no_file_has_are_refused() {
        assert!(matches!(
            length(&u64::MAX.to_le_bytes()),
            Err(HeaderError::Bad(_))
        ));
        assert_eq!(length(&[1, 2]), Err(HeaderError::Short(8)));
        let deep = format!("{{\"__metadata__\":{}", "[".repeat(1_000_000));
        assert!(matches!(
            parse(&file(&deep), None),
            Err(HeaderError::Bad(_))
        ));
    }

    #[test]
    fn an_index_names_files_beside_it() {
        let good = br#"{"metadata":{"total_size":1},"weight_map":{"b":"m-2.safetensors","a":"m-1.safetensors","c":"m-2.safetensors"}}"#;
        assert_eq!(
            index_files(good).unwrap(),
            ["m-1.safetensors", "m-2.safetensors"]
        );
        let bad = br#"{"weight_map":{"a":"../../etc/passwd"}}"#;
        assert!(index_files(bad).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400), size in any::<Option<u64>>()) {
            let _ = parse(&bytes, size);
            let _ = parse(&file(&String::from_utf8_lossy(&bytes)), size);
            let _ = index_files(&bytes);
        }

        #[test]
        fn what_is_read_lies_within_the_file(begin in 0u64..40, length in 0u64..40, size in 0u64..200) {
            let end = begin + length;
            let json = format!(r#"{{"w":{{"dtype":"I8","shape":[{length}],"data_offsets":[{begin},{end}]}}}}"#);
            let bytes = file(&json);
            let whole = bytes.len() as u64 + size;
            prop_assert_eq!(parse(&bytes, Some(whole)).is_ok(), end <= size);
        }
    }
}
