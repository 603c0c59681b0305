//! Tests of what is remembered of idle containers.

use super::*;
use proptest::prelude::*;

const MINUTE_S: i64 = 60;

fn at(seconds: i64) -> i64 {
    (1_000_000 + seconds) * SECOND_NS
}

/// The moment at which both clocks show so many seconds.
fn moment(seconds: i64) -> LookTime {
    LookTime {
        boot: "boot".into(),
        boot_ns: at(seconds),
        wall_ns: at(seconds),
    }
}

/// Idle in every respect, and its engine counts its requests.
fn idle() -> ObservedContainer {
    ObservedContainer {
        id: "a".into(),
        started_ns: Some(at(-3600)),
        gpu_percent: Some(0),
        requests: Some(7),
        requests_now: Some(0),
        last_log_ns: Some(at(-600)),
    }
}

/// The activity at the last of the looks, each at so many seconds.
fn after(looks: &[(i64, ObservedContainer)]) -> Activity {
    let mut history = ActivityHistory::default();
    let mut last = Activity::default();
    for (seconds, container) in looks {
        last = history.add_look(&moment(*seconds), std::slice::from_ref(container))["a"].clone();
    }
    last
}

#[test]
fn idleness_counts_from_the_first_look_that_found_it() {
    let first = after(&[(0, idle())]);
    assert_eq!(first.idle_s(), Some(0), "nobody watched before");
    assert_eq!(first.log_silent_s, Some(0), "nor its log");
    let later = after(&[(0, idle()), (60, idle()), (200, idle())]);
    assert_eq!(later.gpu_idle_s, Some(200));
    assert_eq!(later.requests_idle_s, Some(200));
    assert_eq!(later.idle_s(), Some(200));
}

#[test]
fn a_wall_clock_that_jumps_makes_no_container_idle() {
    let hour = 3600;
    let quiet = ObservedContainer {
        last_log_ns: Some(at(-5)),
        ..idle()
    };
    let writes = ObservedContainer {
        last_log_ns: Some(at(55)),
        ..idle()
    };
    for (last, silent) in [(&quiet, 60), (&writes, 60)] {
        let mut history = ActivityHistory::default();
        history.add_look(&moment(0), std::slice::from_ref(&quiet));
        let jumped = LookTime {
            wall_ns: at(60 + hour),
            ..moment(60)
        };
        let after = &history.add_look(&jumped, std::slice::from_ref(last))["a"];
        assert_eq!(after.gpu_idle_s, Some(60));
        assert_eq!(after.requests_idle_s, Some(60));
        assert_eq!(after.log_silent_s, Some(silent));
    }
    // Who writes at each look is silent for no longer than between two.
    let mut history = ActivityHistory::default();
    let mut silent = None;
    for look in 0..10 {
        let container = ObservedContainer {
            last_log_ns: Some(at(look * 60 - 1)),
            ..idle()
        };
        let jumped = LookTime {
            wall_ns: at(look * 60 + hour),
            ..moment(look * 60)
        };
        silent = history.add_look(&jumped, &[container])["a"].log_silent_s;
    }
    assert_eq!(silent, Some(60));
}

#[test]
fn a_new_line_in_the_log_ends_its_silence() {
    let line = |seconds| ObservedContainer {
        last_log_ns: Some(at(seconds)),
        ..idle()
    };
    let looks = [(0, line(-9)), (60, line(40)), (100, line(40))];
    assert_eq!(after(&looks[..2]).log_silent_s, Some(20));
    assert_eq!(after(&looks).log_silent_s, Some(60));
}

#[test]
fn another_boot_begins_anew() {
    for other in ["other", ""] {
        let mut history = ActivityHistory::default();
        history.add_look(&moment(0), &[idle()]);
        let moment = LookTime {
            boot: other.into(),
            ..moment(200)
        };
        let after = &history.add_look(&moment, &[idle()])["a"];
        assert_eq!(after.gpu_idle_s, Some(0), "{other}");
        assert_eq!(after.requests_idle_s, Some(0), "{other}");
        assert_eq!(after.log_silent_s, Some(0), "{other}");
    }
}

#[test]
fn the_lines_that_our_own_looks_write_are_no_work() {
    let look = |s: i64| {
        let container = ObservedContainer {
            last_log_ns: Some(at(s)),
            ..idle()
        };
        (s, container)
    };
    let looks = after(&[look(0), look(60), look(200)]);
    assert_eq!((looks.log_silent_s, looks.idle_s()), (Some(0), Some(200)));
}

#[test]
fn work_of_any_kind_begins_the_time_anew() {
    let busy = ObservedContainer {
        gpu_percent: Some(40),
        ..idle()
    };
    let looks =
        |middle: &ObservedContainer| after(&[(0, idle()), (60, middle.clone()), (100, idle())]);
    assert_eq!(looks(&busy).gpu_idle_s, Some(0));
    assert_eq!(after(&[(0, idle()), (60, busy)]).gpu_idle_s, Some(0));

    let running = ObservedContainer {
        requests_now: Some(2),
        ..idle()
    };
    assert_eq!(looks(&running).requests_idle_s, Some(0));
    assert_eq!(after(&[(0, idle()), (9, running)]).requests_idle_s, Some(0));

    // It came and went between two looks.
    let counted = ObservedContainer {
        requests: Some(8),
        ..idle()
    };
    let looks = [(0, idle()), (60, counted.clone()), (100, counted.clone())];
    assert_eq!(after(&looks).requests_idle_s, Some(40));
    assert_eq!(after(&looks).idle_s(), Some(40));
}

#[test]
fn what_is_not_known_is_never_idle() {
    for blank in [
        |s: &mut ObservedContainer| s.started_ns = None,
        |s: &mut ObservedContainer| s.gpu_percent = None,
        |s: &mut ObservedContainer| s.requests = None,
        |s: &mut ObservedContainer| s.requests_now = None,
    ] {
        let mut container = idle();
        blank(&mut container);
        assert_eq!(after(&[(0, idle()), (60, container)]).idle_s(), None);
    }
    // GPUs that could not be read for a while may have worked then.
    let unread = ObservedContainer {
        gpu_percent: None,
        ..idle()
    };
    let looks = [(0, idle()), (60, unread), (100, idle())];
    assert_eq!(after(&looks).gpu_idle_s, Some(0));
    // The counter covers the time in which it could not be read.
    let uncounted = ObservedContainer {
        requests: None,
        ..idle()
    };
    let looks = [(0, idle()), (60, uncounted.clone()), (100, idle())];
    assert_eq!(after(&looks).requests_idle_s, Some(100));
    let counted = ObservedContainer {
        requests: Some(8),
        ..idle()
    };
    let looks = [(0, idle()), (60, uncounted), (100, counted)];
    assert_eq!(after(&looks).requests_idle_s, Some(0));
}

#[test]
fn a_gap_is_bridged_by_the_counter_and_by_nothing_else() {
    let uncounted = ObservedContainer {
        requests: None,
        ..idle()
    };
    let hour = 60 * MINUTE_S;
    let gpu = |between: i64, container: &ObservedContainer| {
        after(&[(0, container.clone()), (between, container.clone())]).gpu_idle_s
    };
    assert_eq!(gpu(5 * MINUTE_S, &uncounted), Some(300));
    assert_eq!(gpu(5 * MINUTE_S + 1, &uncounted), Some(0));
    assert_eq!(gpu(hour, &idle()), Some(3600));
    let counted = ObservedContainer {
        requests: Some(8),
        ..idle()
    };
    let looks = [(0, idle()), (hour, counted)];
    assert_eq!(after(&looks).gpu_idle_s, Some(0));
}

#[test]
fn a_container_or_an_engine_that_started_again_begins_anew() {
    let again = ObservedContainer {
        started_ns: Some(at(50)),
        ..idle()
    };
    let looks = after(&[(0, idle()), (60, again)]);
    assert_eq!(
        (looks.gpu_idle_s, looks.requests_idle_s),
        (Some(0), Some(0))
    );
    assert_eq!(
        looks.log_silent_s,
        Some(0),
        "older lines are of another life"
    );
    // The engine in it, which counts from 0 then.
    let engine = ObservedContainer {
        requests: Some(0),
        ..idle()
    };
    let looks = after(&[(0, idle()), (60, engine)]);
    assert_eq!(
        (looks.gpu_idle_s, looks.requests_idle_s),
        (Some(0), Some(0))
    );
}

#[test]
fn a_clock_that_was_set_back_begins_anew() {
    let looks = after(&[(0, idle()), (100, idle()), (-50, idle())]);
    assert_eq!(
        (looks.gpu_idle_s, looks.requests_idle_s),
        (Some(0), Some(0))
    );
}

#[test]
fn who_is_not_seen_for_a_day_is_forgotten() {
    let other = ObservedContainer {
        id: "b".into(),
        ..idle()
    };
    let mut history = ActivityHistory::default();
    history.add_look(&moment(0), &[idle(), other.clone()]);
    let day = 24 * 3600;
    history.add_look(&moment(day), std::slice::from_ref(&other));
    assert_eq!(history.containers.len(), 2);
    history.add_look(&moment(day + 1), std::slice::from_ref(&other));
    let left: Vec<&String> = history.containers.keys().collect();
    assert_eq!(left, ["b"]);
}

#[test]
fn a_file_of_another_version_is_read_as_far_as_it_goes() {
    assert_eq!(
        serde_json::from_str::<ActivityHistory>("{}").unwrap(),
        ActivityHistory::default()
    );
    let old = r#"{"containers":{"a":{"started_ns":1,"seen_ns":2,"since_when":3}},"made_by":"x"}"#;
    assert_eq!(
        serde_json::from_str::<ActivityHistory>(old)
            .unwrap()
            .containers
            .len(),
        1
    );
}

/// Looks at one container: seconds since the one before, and what was seen. The counter never falls.
fn looks() -> impl Strategy<Value = Vec<(i64, ObservedContainer)>> {
    let unknown = 0.9;
    let one = (
        prop_oneof![4 => 1..120i64, 1 => 290..310i64, 1 => 300..9000i64],
        proptest::option::weighted(0.97, prop_oneof![9 => Just(-3600i64), 1 => Just(-1800i64)]),
        proptest::option::weighted(unknown, prop_oneof![7 => Just(0u32), 1 => 1..100u32]),
        proptest::option::weighted(unknown, prop_oneof![6 => Just(0u64), 1 => 1..4u64]),
        any::<bool>(),
        proptest::option::weighted(unknown, prop_oneof![8 => Just(0u64), 1 => 1..3u64]),
        proptest::option::weighted(0.95, -4000..9000i64),
    );
    proptest::collection::vec(one, 1..12).prop_map(|all| {
        let (mut now, mut count) = (0, 0);
        let each = all.into_iter();
        each.map(|(wait, started, gpu, more, counted, running, log)| {
            now += wait;
            count += more.unwrap_or(0);
            let container = ObservedContainer {
                id: "a".into(),
                started_ns: started.map(at),
                gpu_percent: gpu,
                requests: (counted || more.is_some()).then_some(count),
                requests_now: running,
                last_log_ns: log.map(|log| at(log.min(now))),
            };
            (now, container)
        })
        .collect()
    })
}

proptest! {
    #[test]
    fn idle_time_never_exceeds_the_time_since_the_last_work(looks in looks()) {
        let idle = after(&looks);
        let (now, last) = looks.last().unwrap();
        let since = |seconds: i64| Some(u64::try_from(now - seconds).unwrap());
        for (when, container) in &looks {
            let restarted = container.started_ns != last.started_ns;
            if restarted || container.gpu_percent != Some(0) {
                prop_assert!(idle.gpu_idle_s <= since(*when), "{idle:?}");
            }
            let came = container.requests.is_some() && container.requests != last.requests;
            if restarted || came || container.requests_now != Some(0) {
                prop_assert!(idle.requests_idle_s <= since(*when), "{idle:?}");
            }
        }
        prop_assert!(idle.idle_s() <= since(looks[0].0), "nobody watched before: {idle:?}");
    }

    #[test]
    fn missing_figures_never_lengthen_idle_time(looks in looks(), which in any::<prop::sample::Index>(), what in 0..5) {
        let mut less = looks.clone();
        let place = which.index(looks.len());
        let container = &mut less[place].1;
        match what {
            0 => container.started_ns = None,
            1 => container.gpu_percent = None,
            2 => container.requests = None,
            3 => container.requests_now = None,
            _ => container.last_log_ns = None,
        }
        prop_assert!(after(&less).idle_s() <= after(&looks).idle_s(), "{:?}", after(&less));
    }

    #[test]
    fn separate_runs_share_it_through_a_file(looks in looks()) {
        let (mut one, mut many) = (ActivityHistory::default(), ActivityHistory::default());
        for (seconds, container) in &looks {
            let text = serde_json::to_string(&many).unwrap();
            many = serde_json::from_str(&text).unwrap();
            let containers = std::slice::from_ref(container);
            let now = moment(*seconds);
            prop_assert_eq!(one.add_look(&now, containers), many.add_look(&now, containers));
        }
    }
}
