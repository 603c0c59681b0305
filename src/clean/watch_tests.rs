//! Tests of what a service reports and when it acts.

use super::*;
use proptest::prelude::*;

fn verdict(name: &str, act: CleanAct, rule: CleanRule) -> CleanVerdict {
    CleanVerdict {
        of: VerdictSubject::Container(name.repeat(8)),
        name: name.into(),
        act,
        rule,
        why: "for a reason".into(),
        advice: None,
    }
}

fn stuck(name: &str) -> CleanVerdict {
    verdict(name, CleanAct::Stop, CleanRule::OwnerDead)
}

fn kept(name: &str) -> CleanVerdict {
    verdict(name, CleanAct::Keep, CleanRule::Foreign)
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn names(lines: &[WatchLine]) -> Vec<(&str, Doing)> {
    (lines.iter())
        .map(|l| (l.verdict.name.as_str(), l.doing))
        .collect()
}

#[test]
fn what_lasts_is_reported_once_in_ten_minutes() {
    let mut watch = WatchService::new(false, 6);
    let look = [stuck("a"), kept("b")];
    let first = watch.decide_lines(at(0), &look);
    assert_eq!(names(&first), [("a", Doing::Nothing)]);
    for second in [30, 60, 599] {
        assert_eq!(watch.decide_lines(at(second), &look), []);
    }
    assert_eq!(names(&watch.decide_lines(at(600), &look)).len(), 1);
    assert_eq!(watch.decide_lines(at(630), &look), []);
}

#[test]
fn another_figure_in_the_sentence_is_no_new_report() {
    let mut watch = WatchService::new(false, 6);
    let mut v = stuck("a");
    assert_eq!(watch.decide_lines(at(0), &[v.clone()]).len(), 1);
    v.why = "for 31 s now".into();
    assert_eq!(watch.decide_lines(at(30), &[v.clone()]), []);
    v.rule = CleanRule::PastDeadline;
    assert_eq!(
        watch.decide_lines(at(60), &[v]).len(),
        1,
        "another reason is"
    );
}

#[test]
fn an_end_is_reported_and_a_swing_is_not_reported_repeatedly() {
    let mut watch = WatchService::new(false, 6);
    watch.decide_lines(at(0), &[stuck("a")]);
    let over = watch.decide_lines(at(30), &[kept("a")]);
    assert_eq!((over.len(), over[0].verdict.act), (1, CleanAct::Keep));
    for second in [60, 120, 180] {
        assert_eq!(watch.decide_lines(at(second), &[stuck("a")]), []);
        assert_eq!(watch.decide_lines(at(second + 30), &[kept("a")]), []);
    }
    assert_eq!(watch.decide_lines(at(600), &[stuck("a")]).len(), 1);
}

#[test]
fn what_ended_by_itself_is_reported_and_again_when_it_returns() {
    let mut watch = WatchService::new(false, 6);
    watch.decide_lines(at(0), &[stuck("a"), kept("b")]);
    let gone = watch.decide_lines(at(30), &[]);
    assert_eq!(gone.len(), 1, "of what was never told nothing is told");
    assert_eq!(
        (gone[0].event, gone[0].verdict.name.as_str()),
        (WatchEvent::Gone, "a")
    );
    assert_eq!(watch.decide_lines(at(60), &[]), []);
    assert_eq!(watch.decide_lines(at(90), &[stuck("a")]).len(), 1);
}

#[test]
fn a_dry_run_never_acts() {
    let mut watch = WatchService::new(false, 6);
    let lines = watch.decide_lines(
        at(0),
        &[
            stuck("a"),
            verdict("b", CleanAct::EndProcess, CleanRule::Orphan),
        ],
    );
    assert_eq!(verdicts_to_apply(&lines), []);
}

#[test]
fn no_more_acts_than_allowed_and_none_is_forgotten() {
    let mut watch = WatchService::new(true, 2);
    let look = ["a", "b", "c", "d", "e"].map(stuck);
    let first = watch.decide_lines(at(0), &look);
    assert_eq!(verdicts_to_apply(&first), look[..2]);
    let later = names(&first).iter().filter(|n| n.1 == Doing::Later).count();
    assert_eq!(later, 3);
    assert_eq!(
        watch.decide_lines(at(30), &look[2..]).len(),
        2,
        "a and b are gone"
    );
    assert_eq!(
        verdicts_to_apply(&watch.decide_lines(at(60), &look[2..])),
        look[2..4]
    );
    assert_eq!(
        verdicts_to_apply(&watch.decide_lines(at(121), &look[4..])),
        look[4..]
    );
}

#[test]
fn keep_and_report_are_never_acted_on() {
    let mut watch = WatchService::new(true, 6);
    let report = verdict("a", CleanAct::Report, CleanRule::Uninterruptible);
    let others = verdict("c", CleanAct::Report, CleanRule::Foreign);
    let looks = [
        report,
        verdict("b", CleanAct::Keep, CleanRule::Protected),
        others,
    ];
    let lines = watch.decide_lines(at(0), &looks);
    assert_eq!(names(&lines), [("a", Doing::Nothing)]);
}

#[test]
fn what_failed_is_tried_again_after_a_while_or_when_the_daemon_is_back() {
    let mut watch = WatchService::new(true, 6);
    let look = [stuck("a")];
    assert_eq!(
        verdicts_to_apply(&watch.decide_lines(at(0), &look)).len(),
        1
    );
    assert_eq!(watch.decide_lines(at(30), &look), []);
    assert_eq!(
        verdicts_to_apply(&watch.decide_lines(at(600), &look)).len(),
        1
    );
    watch.daemon_is_back();
    assert_eq!(
        verdicts_to_apply(&watch.decide_lines(at(630), &look)).len(),
        1
    );
}

#[test]
fn what_was_cleaned_and_comes_back_is_reported_again() {
    let mut watch = WatchService::new(true, 6);
    let look = [stuck("a")];
    watch.decide_lines(at(0), &look);
    watch.forget_cleaned(&look[0].of);
    assert_eq!(watch.decide_lines(at(30), &[]), [], "its outcome was told");
    assert_eq!(
        verdicts_to_apply(&watch.decide_lines(at(60), &look)).len(),
        1
    );
}

#[test]
fn a_line_is_flat() {
    let mut watch = WatchService::new(true, 6);
    let line = &watch.decide_lines(at(0), &[stuck("a")])[0];
    assert_eq!(
        serde_json::to_value(line).unwrap(),
        serde_json::json!({
            "event": "decision", "of": {"container": "aaaaaaaa"}, "name": "a", "act": "stop",
            "rule": "owner_dead", "why": "for a reason", "advice": null, "doing": "now",
        })
    );
}

/// One look: whom it sees, and how.
fn look() -> impl Strategy<Value = (u64, Vec<CleanVerdict>)> {
    let one = (0..8usize, 0..4usize).prop_map(|(who, how)| {
        let name = ["a", "b", "c", "d", "e", "f", "g", "h"][who];
        match how {
            0 => stuck(name),
            1 => kept(name),
            2 => verdict(name, CleanAct::Report, CleanRule::Zombies),
            _ => verdict(name, CleanAct::Remove, CleanRule::Ended),
        }
    });
    (1..90u64, prop::collection::vec(one, 0..8)).prop_map(|(after, mut verdicts)| {
        verdicts.sort_by(|a, b| a.of.cmp(&b.of));
        verdicts.dedup_by(|a, b| a.of == b.of);
        (after, verdicts)
    })
}

proptest! {
    #[test]
    fn the_limits_hold_for_any_verdicts(looks in prop::collection::vec(look(), 1..60), limit in 1..4u32) {
        let mut watch = WatchService::new(true, limit);
        let (mut now, mut acted) = (0, Vec::new());
        let mut reported: BTreeMap<(VerdictSubject, u8, CleanRule), u64> = BTreeMap::new();
        for (after, verdicts) in looks {
            now += after;
            for line in watch.decide_lines(at(now), &verdicts) {
                let v = &line.verdict;
                match (line.event, line.doing) {
                    (WatchEvent::Gone, _) => {
                        reported.retain(|(of, ..), _| *of != v.of);
                        continue;
                    }
                    (_, Doing::Now) => {
                        prop_assert!(v.act.changes_anything() && verdicts.contains(v));
                        acted.push(now);
                    }
                    _ => {
                        let before = reported.get(&(v.of.clone(), v.act as u8, v.rule));
                        prop_assert!(before.is_none_or(|then| now - then >= 600), "{line:?} at {now}");
                    }
                }
                reported.insert((v.of.clone(), v.act as u8, v.rule), now);
            }
            let last_minute = acted.iter().filter(|then| now - **then < 60).count();
            prop_assert!(last_minute <= limit as usize);
        }
    }
}
