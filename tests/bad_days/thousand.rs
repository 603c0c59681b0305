//! A thousand profiles in one process, and many processes one after the other: what plimsoll holds
//! stays what it was, and nothing is left of any of them.

use super::common::docker;
use super::common::e2e::{Live, REFERENCE_IMAGE, Results, read};
use super::{Found, SMALL, Sweep, Theirs, idle_args, median, number, open_files, rss_kib};
use super::{say, slope, to_its_end, with_state};
use std::time::{Duration, Instant};

/// Between two looks at the journal.
const LOOK: Duration = Duration::from_millis(5);

#[test]
fn in_one_process() {
    needs!(Docker, ReferenceEngine);
    let cells = number("PLIMSOLL_PROFILES").unwrap_or(20) as usize;
    let words: Vec<&str> = SMALL.split(' ').collect();
    let lengths: Vec<usize> = (1..=cells.div_ceil(4)).collect();
    let text = format!(
        "name: thousand\ndefaults:\n  engine: reference\n  input_lengths: {lengths:?}\n  output_lengths: [1, 2]\n  \
         batch_sizes: [1, 2]\n  num_iters: 1\nmodels:\n  - model_id: reference/own\n    \
         image: {REFERENCE_IMAGE}\n    extra_engine_args: {words:?}\n"
    );
    let state = tempfile::tempdir().expect("tempdir");
    let sweep = Sweep::new(&text, state.path());
    let folder = sweep.folder();
    let command = sweep.command(&["--baseline=20ms", "--sample-interval=20ms"]);
    let begin = Instant::now();
    let mut live = Live::start(command);
    let (mut rss, mut files) = (Vec::new(), Vec::new());
    let journal = folder.join("journal.jsonl");
    // A row each: looked at as soon as it is there, in the middle of the next cell's beginning. Open files come and go
    // in between: the fewest of all looks while a row was the last.
    while live.is_running() {
        let text = std::fs::read_to_string(&journal).unwrap_or_default();
        let rows = text.matches("{\"end\":").count();
        let pid = live.pid();
        if let (Some(kib), Some(open)) = (rss_kib(pid), open_files(pid)) {
            rss.resize(rows.max(rss.len()), kib as f64 * 1024.0);
            files.resize(rows.max(files.len()), f64::INFINITY);
            if let Some(fewest) = files.last_mut() {
                *fewest = fewest.min(open as f64);
            }
        }
        std::thread::sleep(LOOK);
    }
    let ended = live.end().expect(0);
    let took = begin.elapsed().as_secs_f64();
    let results = read(&folder.join("results.json"));
    let rows = results["cells"].as_array().expect("cells");
    assert_eq!(rows.len(), lengths.len() * 4);
    assert!(
        rows.iter().all(|c| c["row"]["status"] == "done"),
        "{}",
        ended.stderr
    );
    let found = Found::under(sweep.dir.path());
    found.only_whole("a thousand");
    assert_eq!(found.unfinished.len(), 0);
    assert!(
        found.profiles.len() >= rows.len(),
        "{}",
        found.profiles.len()
    );
    assert_eq!(sweep.left(), Vec::<String>::new());

    let n = rss.len();
    let (early, late) = (&rss[n / 10..n / 5], &rss[n - n / 10..]);
    let tail = &rss[n / 10..];
    let (early, late, leak) = (median(early), median(late), slope(tail));
    // The last look may see the end.
    let (files_early, files_late) = (fewest(&files[n / 10..n / 2]), fewest(&files[n / 2..n - 1]));
    say(&format!(
        "{} profiles in one process in {took:.0} s: resident {:.2} MiB then {:.2} MiB, {leak:.0} bytes a profile; \
         open files {files_early} then {files_late}, at most {}",
        rows.len(),
        early / f64::from(1 << 20),
        late / f64::from(1 << 20),
        files.iter().copied().fold(0.0, f64::max),
    ));
    assert!(files_late <= files_early, "{files:?}");
    if n >= 500 {
        assert!(leak < 4096.0, "{leak} bytes a profile");
    }
}

fn fewest(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn one_process_after_the_other() {
    needs!(Docker, ReferenceEngine);
    let times = number("PLIMSOLL_PROFILES").map_or(3, |n| (n / 10).max(3));
    let theirs = Theirs::idle("hundred");
    let state = tempfile::tempdir().expect("tempdir");
    let extra = format!("--extra-engine-args={SMALL}");
    let results = Results::new();
    let dir = results.arg();
    let begin = Instant::now();
    for _ in 0..times {
        let args = idle_args(&theirs.engine.name, &dir, &extra);
        to_its_end(with_state(&args, state.path())).expect(0);
    }
    theirs.is_clean("after all of them");
    let execs = docker(&["inspect", "-f", "{{json .ExecIDs}}", &theirs.engine.id]);
    assert_eq!(
        execs.as_deref(),
        Ok("null"),
        "Docker knows of no exec any more"
    );
    let found = Found::under(results.0.path());
    found.only_whole("after all of them");
    assert_eq!(found.profiles.len() as u64, times);
    assert_eq!(
        (found.whole.len() as u64, found.unfinished.len()),
        (times, 0)
    );
    let left = std::fs::read_dir(state.path()).expect("state").count();
    say(&format!(
        "{times} processes in {:.0} s: no process, exec, folder or temporary file is left; {left} entries remembered",
        begin.elapsed().as_secs_f64()
    ));
}
