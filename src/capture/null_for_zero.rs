//! A number of which 0 is none, written as null: for fields that were always there in documents.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Null for 0.
pub fn serialize<S: Serializer>(n: &u32, into: S) -> Result<S::Ok, S::Error> {
    (*n > 0).then_some(*n).serialize(into)
}

/// 0 for null.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}
