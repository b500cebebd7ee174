//! Names that are HTML, script, SVG or escape sequences, wherever a user's name reaches a page or a
//! figure: columns, levels, classes, tables, folders of pictures, and runs.

use std::fs;

use crate::workspace::Workspace;

/// None has a slash, so that each can be the name of a file.
const SCRIPT: &str = "<script>alert(1)";
const IMAGE: &str = "\"><img src=x onerror=alert(2)>";
const SVG: &str = "'><svg onload=alert(3)>&lt;";
const STYLE: &str = "]]><style>*{display:none}";
const ESCAPE: &str = "\u{1b}[31mred\u{1b}]0;title\u{7}";

const ALL: [&str; 5] = [SCRIPT, IMAGE, SVG, STYLE, ESCAPE];

/// The elements that the pages and figures are made of.
const ELEMENTS: &str = "html head meta title style body main nav section h1 h2 h3 p a b i s small span code pre ul li \
     div dl dt dd table thead tbody tr th td figure figcaption details summary img svg g rect line \
     polyline polygon circle path text";

/// The only script of a page.
const PAGE_SCRIPT: &str = include_str!("../../../thinfer-study/src/report/page.js");

/// Every tag is one of ours, no attribute is a script, and nothing is there that a terminal obeys.
fn check(name: &str, page: &str) {
    let controls: Vec<char> =
        page.chars().filter(|c| c.is_control() && !matches!(c, '\n' | '\t')).collect();
    assert!(controls.is_empty(), "{name}: control characters {controls:?}");
    // The style sheet has no markup in it, and ends at the first end of its element.
    let page = &page.replacen(&format!("<script>{PAGE_SCRIPT}</script>"), "", 1);
    let (before, rest) = page.split_once("<style>").unwrap_or((page, ""));
    let after = rest.split_once("</style>").map_or(rest, |(_, after)| after);
    let (mut rest, mut tags) = (format!("{before}{after}"), 0);
    while let Some(at) = rest.find('<') {
        rest.drain(..=at);
        let end = rest.find('>').unwrap_or_else(|| panic!("{name}: a tag does not end"));
        let tag: String = rest.drain(..=end).take(end).collect();
        tags += 1;
        assert!(!tag.contains('<'), "{name}: a tag in a tag: {tag}");
        if tag.starts_with("!DOCTYPE") || tag.starts_with('?') {
            continue;
        }
        let element = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        let known = ELEMENTS.split_ascii_whitespace().any(|known| known == element);
        assert!(known && element != "style", "{name}: <{tag}> is not ours");
        assert_eq!(tag.matches('"').count() % 2, 0, "{name}: an open attribute in <{tag}>");
        // What is between quotes is a value; the rest are names.
        let outside: String = tag.split('"').step_by(2).collect::<Vec<_>>().join(" ");
        for attribute in outside.split_ascii_whitespace().skip(1) {
            assert!(!attribute.to_lowercase().starts_with("on"), "{name}: <{tag}>");
        }
        let outside = ["src=\"http", "src=\"//", "href=\"http", "href=\"javascript"];
        assert!(outside.iter().all(|link| !tag.contains(link)), "{name}: <{tag}>");
    }
    assert!(tags > 10, "{name}: only {tags} tags");
}

fn checked(workspace: &Workspace, path: &str) -> String {
    let page = fs::read_to_string(workspace.path(path)).unwrap();
    check(path, &page);
    page
}

#[test]
#[should_panic(expected = "is not ours")]
fn a_planted_script_is_found() {
    check("page", &("<p></p>".repeat(10) + SCRIPT));
}

#[test]
#[should_panic(expected = "control characters")]
fn a_planted_escape_sequence_is_found() {
    check("page", &("<p></p>".repeat(10) + ESCAPE));
}

#[test]
#[should_panic(expected = "onload")]
fn a_planted_handler_is_found() {
    check("page", &("<p></p>".repeat(10) + "<svg onload=alert(3)>"));
}

/// A table with hostile names in every place: numbers, a category, classes.
fn table(workspace: &Workspace, name: &str) {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let header = [SCRIPT, IMAGE, SVG, STYLE, ESCAPE, "colour<b>"].map(quoted);
    let mut text = header.join(",") + "\n";
    for i in 0..90usize {
        let numbers = [i % 7, (i * 5) % 11, (i * 3) % 13, (i * 7) % 5].map(|n| n.to_string());
        // The fifth column is the class, which follows from the first.
        let class = quoted(ALL[(i % 7) % 3]);
        let level = quoted(ALL[(i * 11) % 5]);
        text += &format!("{},{class},{level}\n", numbers.join(","));
    }
    fs::write(workspace.path(name), text).unwrap();
}

#[test]
fn hostile_names_of_a_table_stay_text_in_reports_and_comparisons() {
    let workspace = Workspace::new();
    let file = format!("{IMAGE}{ESCAPE}{SVG}.csv");
    table(&workspace, &file);
    let path = format!("data.path={file}");
    let target = format!("data.target={ESCAPE}");
    let runs = [SCRIPT, IMAGE].map(|name| format!("runs/{name}"));
    for (run, method) in runs.iter().zip(["em-mcmc", "sgd"]) {
        let method = format!("method.kind={method}");
        let set = ["data.kind=table", &path, &target, &method, "train.epochs=20"];
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
        workspace
            .write("own.toml", "[prune]\nwarm_up_epochs = 4\n[schedule.step_size]\ncycles = 2\n");
        workspace.succeeds(&[&["train", "own.toml", "--quiet", "--out", run][..], &set].concat());
        let page = checked(&workspace, &format!("{run}/report.html"));
        for shown in ["&lt;script&gt;alert(1)", "&quot;&gt;&lt;img src=x", "&amp;lt;"] {
            assert!(page.contains(shown), "{run}: `{shown}` is not on the page");
        }
        workspace.succeeds(&["report", run, "--out", "again.html", "--force", "--quiet"]);
        checked(&workspace, "again.html");
    }
    workspace.succeeds(&["compare", &runs[0], &runs[1], "--quiet"]);
    let page = checked(&workspace, "comparison.html");
    assert!(page.contains("&lt;script&gt;alert(1)"), "the name of a run is not on the page");
}

#[test]
fn hostile_names_of_classes_and_folders_stay_text_in_reports_and_figures() {
    let workspace = Workspace::new();
    let folder = format!("{SVG}{SCRIPT}");
    for at in 0..12u8 {
        let part = ["train", "val"][usize::from(at % 2)];
        let class = [IMAGE, STYLE][usize::from(at / 6)];
        let path = workspace.path(&folder).join(part).join(class).join(format!("{at}{SCRIPT}.png"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, crate::data::PIXEL).unwrap();
    }
    // Its name reaches the report, as an image that cannot be read.
    let broken = workspace.path(&folder).join("val").join(IMAGE).join(format!("{SVG}.png"));
    fs::write(broken, "garbage").unwrap();
    workspace.write(
        "own.toml",
        "[data]\nkind = \"images\"\nimage_size = 28\n[model]\nname = \"lenet\"\n[prune]\n\
         warm_up_epochs = 1\n[schedule.step_size]\nvalue = 0.05\ncycles = 2\n[train]\n\
         epochs = 4\nbatch = 4\nsamples_per_cycle = 1\n",
    );
    let path = format!("data.path={folder}");
    let runs = [SCRIPT, IMAGE].map(|name| format!("runs/{name}"));
    for (run, seed) in runs.iter().zip(["seed=1", "seed=2"]) {
        let set = ["--set", &path, "--set", seed, "--set", "data.seed=1"];
        workspace.succeeds(&[&["train", "own.toml", "--quiet", "--out", run][..], &set].concat());
        let page = checked(&workspace, &format!("{run}/report.html"));
        for shown in ["&quot;&gt;&lt;img src=x", "]]&gt;&lt;style&gt;"] {
            assert!(page.contains(shown), "{run}: `{shown}` is not on the page");
        }
    }
    workspace.succeeds(&["compare", &runs[0], &runs[1], "--quiet"]);
    checked(&workspace, "comparison.html");
    let draw = ["reproduce", "figure2", "--run", &runs[0], "--run", &runs[1], "--out", "figures"];
    workspace.succeeds(&draw);
    checked(&workspace, "figures/figure2.svg");
}

/// What a terminal gets has nothing in it that it would obey.
fn quiet(what: &str, text: &str) {
    let controls: Vec<char> =
        text.chars().filter(|c| c.is_control() && !matches!(c, '\n' | '\t')).collect();
    assert!(controls.is_empty(), "{what}: control characters {controls:?} in\n{text}");
}

#[test]
fn hostile_names_of_a_table_stay_text_on_a_terminal() {
    let workspace = Workspace::new();
    let name = format!("{ESCAPE}.csv");
    table(&workspace, &name);
    let (path, target) = (format!("data.path={name}"), format!("data.target={ESCAPE}"));
    let missing = format!("no{ESCAPE}");
    workspace.write("own.toml", "[prune]\nwarm_up_epochs = 4\n[schedule.step_size]\ncycles = 2\n");
    let set = [path.as_str(), target.as_str(), "data.kind=table", "method.kind=em-mcmc"];
    let set = [&set[..], &["train.epochs=20"]].concat();
    let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    let run = format!("run{ESCAPE}");
    let train = [&["train", "own.toml", "--out", run.as_str()][..], &set].concat();
    let unknown = format!("{ESCAPE}=1");
    let cases: [(i32, Vec<&str>); 11] = [
        (0, vec!["select", &name, "--target", ESCAPE]),
        (0, vec!["select", &name, "--target", ESCAPE, "--json"]),
        (0, train),
        (0, vec!["eval", &run]),
        (0, vec!["eval", &run, "--json"]),
        (0, vec!["predict", &run, &name, "--json"]),
        (2, vec!["train", "own.toml", "--out", &run, "--set", &unknown]),
        (2, vec!["select", &name, "--target", &missing]),
        (1, vec!["eval", &missing]),
        (1, vec!["predict", &run, &missing]),
        (2, vec![ESCAPE]),
    ];
    let mut shown = 0;
    for (code, arguments) in cases {
        let outcome = workspace.run(&arguments);
        assert_eq!(outcome.code, Some(code), "{arguments:?}: {}", outcome.stderr);
        for text in [&outcome.stdout, &outcome.stderr] {
            quiet(&format!("{arguments:?}"), text);
            shown +=
                usize::from(text.contains("\\u{1b}[31mred") || text.contains("\\u001b[31mred"));
        }
    }
    assert!(shown >= 8, "hostile names were shown {shown} times only");
}

#[test]
fn hostile_names_of_classes_and_files_stay_text_on_a_terminal() {
    let workspace = Workspace::new();
    for at in 0..12u8 {
        let part = ["train", "val"][usize::from(at % 2)];
        let class = [ESCAPE, "dog"][usize::from(at / 6)];
        let path = workspace.path("pictures").join(part).join(class).join(format!("{at}.png"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, crate::data::PIXEL).unwrap();
    }
    let broken = format!("pictures/val/dog/{ESCAPE}.png");
    fs::write(workspace.path(&broken), "garbage").unwrap();
    workspace.write(
        "own.toml",
        "[data]\nkind = \"images\"\nimage_size = 28\npath = \"pictures\"\n[model]\nname = \"lenet\"\n\
         [prune]\nwarm_up_epochs = 1\n[schedule.step_size]\nvalue = 0.05\ncycles = 2\n[train]\n\
         epochs = 4\nbatch = 4\nsamples_per_cycle = 1\n",
    );
    let cases: [(i32, &[&str]); 5] = [
        (0, &["data", "check", "pictures"]),
        (0, &["train", "own.toml"]),
        (0, &["eval", "runs/own"]),
        (1, &["predict", "runs/own", &broken]),
        (0, &["predict", "runs/own", "pictures", "--json"]),
    ];
    for (code, arguments) in cases {
        let outcome = workspace.run(arguments);
        assert_eq!(outcome.code, Some(code), "{arguments:?}: {}{}", outcome.stdout, outcome.stderr);
        let both = outcome.stdout + &outcome.stderr;
        quiet(&format!("{arguments:?}"), &both);
        let named = both.contains("\\u{1b}[31mred") || both.contains("\\u001b[31mred");
        assert!(named, "{arguments:?} does not show the name:\n{both}");
    }
}
