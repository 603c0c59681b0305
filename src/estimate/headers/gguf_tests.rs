//! GGUF headers, made by hand and made up.

use super::*;
use proptest::prelude::*;

/// A header in the making.
pub(crate) struct Maker {
    settings: Vec<u8>,
    tensors: Vec<u8>,
    counts: (u64, u64),
    at: u64,
}

impl Maker {
    pub(crate) fn new() -> Maker {
        Maker {
            settings: Vec::new(),
            tensors: Vec::new(),
            counts: (0, 0),
            at: 0,
        }
    }

    fn name(to: &mut Vec<u8>, name: &str) {
        to.extend((name.len() as u64).to_le_bytes());
        to.extend(name.as_bytes());
    }

    fn raw(mut self, key: &str, kind: u32, bytes: &[u8]) -> Maker {
        Self::name(&mut self.settings, key);
        self.settings.extend(kind.to_le_bytes());
        self.settings.extend(bytes);
        self.counts.1 += 1;
        self
    }

    pub(crate) fn number(self, key: &str, value: u32) -> Maker {
        self.raw(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Maker {
        let mut bytes = Vec::new();
        Self::name(&mut bytes, value);
        self.raw(key, 8, &bytes)
    }

    pub(crate) fn tensor(mut self, name: &str, shape: &[u64], kind: u32, bytes: u64) -> Maker {
        Self::name(&mut self.tensors, name);
        self.tensors.extend((shape.len() as u32).to_le_bytes());
        for side in shape {
            self.tensors.extend(side.to_le_bytes());
        }
        self.tensors.extend(kind.to_le_bytes());
        self.tensors.extend(self.at.to_le_bytes());
        self.at += bytes.next_multiple_of(32);
        self.counts.0 += 1;
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut made = b"GGUF".to_vec();
        made.extend(3u32.to_le_bytes());
        made.extend(self.counts.0.to_le_bytes());
        made.extend(self.counts.1.to_le_bytes());
        made.extend(self.settings);
        made.extend(self.tensors);
        made
    }
}

#[test]
fn settings_and_tensors_are_read() {
    let bytes = Maker::new()
        .text("general.architecture", "llama")
        .number("llama.block_count", 2)
        .tensor("token_embd.weight", &[256, 10], 12, 1440)
        .tensor("blk.0.attn_norm.weight", &[256], 0, 1024)
        .bytes();
    let read = parse(&bytes, Some(bytes.len() as u64 + 32 + 2464)).unwrap();
    assert_eq!(read.settings["general.architecture"], "llama");
    assert_eq!(read.tensors[0].bytes, 10 * 144);
    assert_eq!(read.tensors[0].shape, [10, 256]);
    assert_eq!(read.tensors[0].dtype, "Q4_K");
    assert_eq!(read.tensors[1].bytes, 1024);
}

#[test]
fn a_cut_off_header_names_the_bytes_it_needs() {
    let bytes = Maker::new()
        .text("general.architecture", "llama")
        .tensor("w", &[32], 8, 34)
        .bytes();
    for end in 0..bytes.len() {
        match parse(&bytes[..end], None) {
            Err(HeaderError::Short(needed)) => assert!(needed as usize > end),
            other => panic!("{end}: {other:?}"),
        }
    }
    assert!(parse(&bytes, None).is_ok());
}

#[test]
fn what_lies_is_refused() {
    let refused = |bytes: Vec<u8>, size: Option<u64>| match parse(&bytes, size) {
        Err(HeaderError::Bad(what)) => what,
        other => panic!("{other:?}"),
    };
    let mut many = Maker::new().bytes();
    many[8..16].copy_from_slice(&(1u64 << 63).to_le_bytes());
    assert!(refused(many, None).contains("9223372036854775808 tensors"));
    let behind = Maker::new().tensor("w", &[32], 0, 128).bytes();
    assert!(refused(behind, Some(100)).contains("beyond the end"));
    let odd = Maker::new().tensor("w", &[33], 2, 18).bytes();
    assert!(refused(odd, None).contains("not a multiple"));
    let huge = Maker::new()
        .tensor("w", &[1 << 40, 1 << 40, 1 << 40], 0, 4)
        .bytes();
    assert!(refused(huge, None).contains("more values"));
    // Its header has one block, it has two: the next lies over it.
    let over = Maker::new()
        .tensor("a", &[64], 0, 32)
        .tensor("b", &[8], 0, 32)
        .bytes();
    assert!(refused(over, None).contains("`b` overlaps another"));
    let unknown = Maker::new().tensor("w", &[32], 777, 18).bytes();
    assert!(refused(unknown, None).contains("type 777"));
}

#[test]
fn a_list_that_claims_to_be_endless_takes_no_memory() {
    let mut list = 4u32.to_le_bytes().to_vec();
    list.extend(u64::MAX.to_le_bytes());
    let bytes = Maker::new().raw("tokens", 9, &list).bytes();
    assert!(parse(&bytes, None).is_err());
    let mut nested = Vec::new();
    for _ in 0..64 {
        nested.extend(9u32.to_le_bytes());
        nested.extend(1u64.to_le_bytes());
    }
    let bytes = Maker::new().raw("deep", 9, &nested).bytes();
    let what = parse(&bytes, None).unwrap_err().to_string();
    assert!(what.contains("too deep"), "{what}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        tail in proptest::collection::vec(any::<u8>(), 0..300),
        counts in (0u64..4, 0u64..4),
        size in any::<Option<u64>>(),
    ) {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(counts.0.to_le_bytes());
        bytes.extend(counts.1.to_le_bytes());
        bytes.extend(tail);
        let _ = parse(&bytes, size);
    }

    #[test]
    fn a_byte_that_is_changed_is_no_panic(at in 0usize..200, to in any::<u8>()) {
        let mut bytes = Maker::new()
            .text("general.architecture", "llama")
            .number("llama.block_count", 2)
            .tensor("token_embd.weight", &[256, 10], 12, 1440)
            .tensor("output.weight", &[256, 10], 14, 2100)
            .bytes();
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok(read) = parse(&bytes, None) {
            let _ = crate::estimate::headers::gguf_model::model(&read, "x", "test");
        }
    }
}
