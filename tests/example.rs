//! The example in results/example is what this plimsoll makes of its capture.

use assert_cmd::Command;
use std::path::Path;

#[test]
fn the_example_is_derived_from_its_capture_byte_for_byte() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/example");
    let derived = Command::cargo_bin("plimsoll")
        .unwrap()
        .args(["derive", "--json"])
        .arg(folder.join("tiny-profile.capture"))
        .assert()
        .success();
    let stored = std::fs::read(folder.join("tiny-profile.json")).unwrap();
    assert!(
        derived.get_output().stdout == stored,
        "results/example/tiny-profile.json is not what derive makes of its capture: \
         run `plimsoll derive results/example/tiny-profile.capture` and look at the diff"
    );
}
