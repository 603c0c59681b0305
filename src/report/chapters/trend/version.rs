//! The order of versions: by their numbers, 0.9 before 0.10, a release candidate before its release.

/// A piece of a version. The order of the variants is the order of versions that agree up to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum VersionPiece {
    /// What comes before the release: `rc`, `dev`.
    Before(String),
    /// The end of the text.
    End,
    /// A number.
    Number(u64),
    /// What comes after the release: `post`, a local build.
    After(String),
}

/// Words of what comes before a release.
const BEFORE: &[&str] = &[
    "a", "alpha", "b", "beta", "c", "dev", "nightly", "pre", "preview", "rc",
];

/// What a version is put in order by.
pub(super) fn version_order(version: &str) -> impl Ord + use<> {
    let version = version.trim().to_ascii_lowercase();
    let version = version.strip_prefix('v').unwrap_or(&version);
    let mut pieces = Vec::new();
    let mut rest = version;
    while let Some(first) = rest.chars().next() {
        if !first.is_ascii_alphanumeric() {
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        }
        let number = first.is_ascii_digit();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() || c.is_ascii_digit() != number)
            .unwrap_or(rest.len());
        let (piece, behind) = rest.split_at(end);
        rest = behind;
        pieces.push(match number {
            // More digits than a number holds are a date and a half.
            true => VersionPiece::Number(piece.parse().unwrap_or(u64::MAX)),
            false if BEFORE.contains(&piece) => VersionPiece::Before(piece.to_owned()),
            false => VersionPiece::After(piece.to_owned()),
        });
    }
    pieces.push(VersionPiece::End);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_their_releases() {
        let right = [
            "0.9.2",
            "v0.10.0.dev3",
            "0.10.0rc1",
            "0.10.0rc2",
            "0.10.0",
            "0.10.0.1",
            "0.10.0.post1",
            "0.10.1",
            "0.11",
            "0.11.0",
            "0.11.0+cu128",
            "1.0.0-beta",
            "1.0.0",
        ];
        for pair in right.windows(2) {
            assert!(version_order(pair[0]) < version_order(pair[1]), "{pair:?}");
        }
        assert!(version_order("b4567") < version_order("b10000"));
        assert!(version_order("v1.2") == version_order("1.2"));
        // Whatever is written there has some place.
        assert!(version_order("") < version_order("99999999999999999999999999"));
        assert!(version_order("é 1") == version_order("1"));
    }
}
