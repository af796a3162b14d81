//! Reports drawn from a real run's `report.json`, kept since version 1 of the schema: yesterday's
//! results open today.

use steadfast_lab_experiment::beside::{
    self,
    report::{self as data, BesideReport},
};
use steadfast_lab_experiment::report::{Report, parse};
use steadfast_lab_experiment::{html, terminal};

fn golden() -> Report {
    parse(include_str!("../testdata/report.v1.json")).unwrap()
}

/// Every opened tag is closed, in order; attributes are quoted. Returns the number of elements.
fn balanced(page: &str) -> usize {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    let (mut open, mut count) = (Vec::new(), 0);
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let tag = &rest[at + 1..end];
        assert!(tag.matches('"').count().is_multiple_of(2), "<{tag}>");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name), "</{name}> closes something else"),
            (false, false) if !VOID.contains(&name) => open.push(name),
            _ => {}
        }
        count += 1;
        rest = &rest[end + 1..];
        // Text in style and script is not markup.
        if tag == "style" || tag == "script" {
            rest = &rest[rest.find("</").unwrap()..];
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    count
}

#[test]
fn a_report_of_version_1_is_read_and_drawn_whole() {
    let report = golden();
    let page = html::render(&report);
    assert!(balanced(&page) > 500);
    for source in ["10.616 ms", "9.037 ms", "1.197 ms", "49.3 %", "14.9 %"] {
        assert!(page.contains(source), "{source}");
    }
    for phase in &report.phases {
        let known = phase.response.percentiles(phase.operations);
        assert!(known[1].is_some() && (known[3].is_some() == (phase.operations >= 1_000)));
        for value in known.into_iter().flatten() {
            assert!(page.contains(&format!("<td>{value:.3}</td>")), "{}", phase.run);
        }
        assert!(!phase.intervals.is_empty());
    }
    for line in report.load.text.lines() {
        assert!(page.contains(line.trim_end()) || line.contains(['<', '&', '\'']), "{line}");
    }
    for command in &report.commands {
        assert!(page.contains(&command.line), "{}", command.line);
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_knows_both_lights_and_paper() {
    let page = html::render(&golden());
    for outside in ["http://", "https://", "src=", "url(", "@import", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for inside in ["prefers-color-scheme: dark", "@media print", "width=device-width", "lang=\"en\""] {
        assert!(page.contains(inside), "{inside}");
    }
}

#[test]
fn words_from_a_file_stay_words() {
    let mut report = golden();
    report.title = "<script>alert('x')</script>".to_owned();
    report.arms[0].label = "\"><img onerror=x>".to_owned();
    report.load.text = "</pre><b>".to_owned();
    report.commands[0].line = "rm <&>".to_owned();
    let page = html::render(&report);
    balanced(&page);
    assert!(!page.contains("<script>alert") && !page.contains("<img") && !page.contains("</pre><b>"));
}

#[test]
fn a_busy_machine_is_told_first() {
    let mut report = golden();
    // Processes that wait for a disk keep no processor busy, and spoil figures all the same.
    report.conditions.machine.busy_before_percent = 0.0;
    assert!(report.warning().unwrap().contains("load average of 6.0 on 2 processors"));
    report.conditions.machine.load_before = 0.5;
    assert!(report.warning().is_none() && !html::render(&report).contains("class=\"warning\""));
    report.conditions.machine.busy_before_percent = 61.0;
    let page = html::render(&report);
    let warning = page.find("The machine was 61 % busy").unwrap();
    assert!(warning < page.find("<table").unwrap());
    assert!(terminal::table(&report).contains("61 % busy"));
}

#[test]
fn a_report_with_nothing_measured_is_still_a_page() {
    let mut report = golden();
    report.phases.clear();
    report.measures.iter_mut().for_each(|measure| measure.values.clear());
    let page = html::render(&report);
    balanced(&page);
    assert!(page.contains("not measured"));
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn columns_on_the_terminal_are_aligned() {
    let mut report = golden();
    (report.conditions.machine.busy_before_percent, report.conditions.machine.load_before) = (0.0, 0.0);
    let table = terminal::table(&report);
    let ends = |needle: &str| -> Vec<usize> {
        table.lines().filter_map(|line| line.find(needle).map(|at| line[..at].chars().count())).collect()
    };
    // The first unit of a row of ours, and of the reports, ends at the same column.
    assert_eq!(ends(" MiB"), vec![ends(" MiB")[0]; 2]);
    assert_eq!(ends(" MB"), vec![ends(" MB")[0]; 4]);
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
}

/// A real run of `lab run cow --tiny --rounds 2`, kept since version 1 of its schema.
fn beside() -> BesideReport {
    data::parse(include_str!("../testdata/beside.v1.json")).unwrap().unwrap()
}

#[test]
fn a_report_of_many_file_systems_is_read_and_drawn_whole() {
    let report = beside();
    let page = beside::render(&report);
    assert!(balanced(&page) > 1_000);
    for arm in &report.arms {
        assert!(page.contains(&arm.label), "{}", arm.label);
    }
    for goal in &report.goals {
        assert!(page.contains(&goal.text.replace('\'', "&#39;")), "{}", goal.text);
    }
    for words in ["2,172", "32,250", "8.243", "fsync_each", "rdpct=50,rhpct=10,seekpct=50"] {
        assert!(page.contains(words), "{words}");
    }
    for phase in &report.phases {
        for interval in &phase.intervals {
            assert!(
                page.contains(&format!("<td>{:.1}</td>", interval.rate)),
                "{} {}",
                phase.arm,
                interval.at_s
            );
        }
    }
    for outside in ["http://", "https://", "src=", "url(", "@import", "<link"] {
        // The pictures' name space is a name, not a place.
        assert!(!page.replace("http://www.w3.org/2000/svg", "").contains(outside), "{outside}");
    }
}

#[test]
fn many_lines_are_told_apart_without_colour() {
    let report = beside();
    let page = beside::render(&report);
    for (index, arm) in report.arms.iter().enumerate() {
        let name = arm.label.replace("data=", "");
        // Its dashes in the key beside its name, at the end of its line.
        let end = format!(
            "<line class=\"c{index} series\" x1=\"0\" x2=\"26\" y1=\"3\" y2=\"3\"/></svg>{name}</span>"
        );
        assert!(page.contains(&end), "{end}");
        assert!(index == 0 || page.contains(&format!(".c{index}.series {{ stroke-dasharray:")), "{index}");
    }
    // Rate, response time and processor use over time, and percentiles: once for each variant.
    assert_eq!(page.matches("<div class=\"ends\">").count(), 4 * report.variants.len());
}

#[test]
fn what_took_no_part_says_so_and_has_no_number() {
    let mut report = beside();
    let gone = report.arms[4].key.clone();
    report.arms[4].missing = Some("mkfs.<btrfs> is not installed".to_owned());
    report.rows.iter_mut().for_each(|row| drop(row.values.remove(&gone)));
    report.phases.retain(|phase| phase.arm != gone);
    let page = beside::render(&report);
    balanced(&page);
    assert!(page.contains("mkfs.&lt;btrfs&gt; is not installed") && page.contains("not there"));
    let table = beside::table(&report);
    assert!(table.contains("btrfs took no part") && !table.contains("| btrfs |"), "{table}");
    report.rows.clear();
    report.phases.clear();
    report.goals.clear();
    let page = beside::render(&report);
    balanced(&page);
    assert!(!page.contains("NaN") && !page.contains("inf<"));
}

#[test]
fn what_did_not_come_to_its_end_keeps_what_it_came_to() {
    let mut report = beside();
    report.arms[4].missing = Some("round 2: no room is left".to_owned());
    let page = beside::render(&report);
    balanced(&page);
    assert!(
        page.contains("btrfs did not come to its end: round 2: no room is left.")
            && !page.contains("not there")
    );
    let table = beside::table(&report);
    assert!(
        table.contains("btrfs did not come to its end: round 2") && table.contains("| btrfs |"),
        "{table}"
    );
}

#[test]
fn the_rate_over_time_is_drawn_for_two_arms_as_well() {
    let page = html::render(&golden());
    assert!(page.contains("Write: rate over time") && page.contains("Read: rate over time"));
}
