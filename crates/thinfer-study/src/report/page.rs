//! The pieces of the page: text, tables, sections, figures. Text is escaped here and nowhere else.

use thinfer_data::Result;
use thinfer_run::evaluate::{Belief, Verdict};

use super::axis::grouped;
use super::plots::{Ink, Plot};

/// What stands where there is no number.
const NOTHING: &str = "\u{2013}";

/// Text for HTML, in elements and in attributes.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // No control character is allowed in HTML, and none can be seen.
            c if c.is_control() && !matches!(c, '\n' | '\t') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A number with four significant digits, zeros at the end included, so that numbers below each
/// other compare.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return NOTHING.into();
    }
    // Rounded first, so that 999.96 has the digits of 1,000.
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    if rounded == 0.0 {
        return "0".into();
    }
    let size = rounded.abs();
    if !(1e-3..1e7).contains(&size) {
        return format!("{value:.2e}").replace('-', "\u{2212}");
    }
    let decimals = (3.0 - size.log10().floor()).clamp(0.0, 6.0) as usize;
    grouped(&format!("{rounded:.decimals$}"))
}

/// A number that may be absent.
pub(super) fn number_or_nothing(value: Option<f64>) -> String {
    value.map_or_else(|| NOTHING.into(), number)
}

/// A whole number.
pub(super) fn count(value: usize) -> String {
    grouped(&value.to_string())
}

/// A mean of whole numbers, to the last whole digit.
pub(super) fn quantity(value: f64) -> String {
    match value {
        v if !v.is_finite() => NOTHING.into(),
        v if v.fract() == 0.0 => grouped(&format!("{v:.0}")),
        v => grouped(&format!("{v:.1}")),
    }
}

/// A share with one decimal; what is not quite 0 or 1 does not read as if it were.
pub(super) fn percent(share: f64) -> String {
    if !share.is_finite() {
        return NOTHING.into();
    }
    let hundred = 100.0 * share;
    let text = if share > 0.0 && hundred < 0.05 {
        "< 0.1".into()
    } else if share < 1.0 && hundred >= 99.95 {
        "> 99.9".into()
    } else {
        format!("{hundred:.1}")
    };
    format!("{text}\u{a0}%")
}

/// The level of an interval, which is a name and no measurement: `90 %`.
pub(super) fn level(share: f64) -> String {
    format!("{}\u{a0}%", (1e4 * share).round() / 1e2)
}

/// A share that may be absent.
pub(super) fn percent_or_nothing(share: Option<f64>) -> String {
    share.map_or_else(|| NOTHING.into(), percent)
}

/// `1 chain`, `2 chains`.
pub(super) fn plural(n: usize, thing: &str) -> String {
    format!("{} {thing}{}", count(n), if n == 1 { "" } else { "s" })
}

/// At most `most` things in one line, then how many more there are.
pub(super) fn listed(things: &[String], most: usize) -> String {
    let shown = things.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    match things.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {} more", count(more)),
    }
}

/// An element with HTML in it; `tag` is its name and, after a space, its attributes.
pub(super) fn element(tag: &str, html: &str) -> String {
    let name = tag.split(' ').next().unwrap_or(tag);
    format!("<{tag}>{html}</{name}>\n")
}

/// Escaped text in which pairs of backticks become code.
fn prose(text: &str) -> String {
    let safe = escape(text);
    let parts: Vec<&str> = safe.split('`').collect();
    let html = |(at, part): (usize, &&str)| match (at % 2, at + 1 < parts.len()) {
        (1, true) => format!("<code>{part}</code>"),
        // A backtick without a partner stays one.
        (1, false) => format!("`{part}"),
        _ => (*part).to_owned(),
    };
    parts.iter().enumerate().map(html).collect::<Vec<_>>().concat()
}

/// A paragraph.
pub(super) fn paragraph(text: &str) -> String {
    element("p", &prose(text))
}

/// A paragraph that explains a table or a plot.
pub(super) fn remark(text: &str) -> String {
    element("p class=\"remark\"", &prose(text))
}

/// Whether to believe a run, with what else is doubtful.
pub(super) fn verdict(verdict: &Verdict) -> String {
    let class = match verdict.believe {
        Belief::Yes => "yes",
        Belief::Partly => "partly",
        Belief::Unknown => "unknown",
        Belief::No => "no",
    };
    let more: Vec<String> =
        verdict.more.iter().map(|more| remark(&format!("Also: {more}."))).collect();
    let html = paragraph(&verdict.sentence) + &more.concat();
    element(&format!("div class=\"verdict {class}\" id=\"verdict\""), &html)
}

/// A list.
pub(super) fn bullets(class: &str, items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| element("li", &prose(item))).collect();
    element(&format!("ul class=\"{class}\""), &items.concat())
}

/// A table: the first cell of each row names it.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    table_of("table", head, rows)
}

/// A table of things of one kind, which a reader may want in another order.
pub(super) fn sortable(head: &[&str], rows: &[Vec<String>]) -> String {
    table_of("table class=\"sortable\"", head, rows)
}

fn table_of(tag: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    let row = |cells: &Vec<String>| {
        let cell = |(at, text): (usize, &String)| match at {
            0 => element("th scope=\"row\"", &escape(text)),
            _ => element("td", &escape(text)),
        };
        element("tr", &cells.iter().enumerate().map(cell).collect::<Vec<_>>().concat())
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    let body = element("tbody", &rows.concat());
    wide(&element(tag, &(table_head(head) + &body)))
}

/// What may be wider than the page and is moved by itself, by keys too.
pub(super) fn wide(html: &str) -> String {
    element("div class=\"wide\" tabindex=\"0\"", html)
}

/// The head of a table; nothing without names.
pub(super) fn table_head<T: AsRef<str>>(names: &[T]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let name = |name: &T| match name.as_ref() {
        // A heading that says nothing is none.
        "" => element("td", ""),
        name => element("th scope=\"col\"", &escape(name)),
    };
    element("thead", &element("tr", &names.iter().map(name).collect::<Vec<_>>().concat()))
}

/// A part of the page with a heading, which the list of contents names.
pub(super) struct Section {
    id: &'static str,
    title: String,
    body: String,
}

/// A section with a heading; `body` is HTML.
pub(super) fn section(id: &'static str, title: impl Into<String>, body: String) -> Section {
    Section { id, title: title.into(), body }
}

impl Section {
    fn html(&self) -> String {
        let Self { id, title, body } = self;
        format!("<section id=\"{id}\">\n<h2>{}</h2>\n{body}</section>\n", escape(title))
    }

    fn link(&self) -> String {
        let link = format!("<a href=\"#{}\">{}</a>", self.id, escape(&self.title));
        element("li", &link)
    }
}

/// A number that is looked for first.
pub(super) struct Tile {
    value: String,
    name: String,
}

impl Tile {
    /// The number with its unit, and what it is.
    pub(super) fn new(value: impl Into<String>, name: impl Into<String>) -> Self {
        Self { value: value.into(), name: name.into() }
    }
}

/// Numbers beside each other.
pub(super) fn tiles(all: &[Tile]) -> String {
    let tile = |Tile { value, name }: &Tile| {
        element("div", &(element("b", &escape(value)) + &element("span", &escape(name))))
    };
    element("div class=\"tiles\"", &all.iter().map(tile).collect::<Vec<_>>().concat())
}

/// The sections as a list of links.
fn contents(sections: &[Section]) -> String {
    if sections.len() < 2 {
        return String::new();
    }
    let links: Vec<String> = sections.iter().map(Section::link).collect();
    element("nav aria-label=\"Contents\"", &element("ul", &links.concat()))
}

/// Figures side by side where there is room; each is HTML.
pub(super) fn figures(all: &[String]) -> String {
    element("div class=\"figures\"", &all.concat())
}

/// What a colour or a shape in a plot means.
pub(super) struct Key {
    /// How it looks: `line`, `faint`, `dot` or `area`, a class of the style sheet.
    pub shape: &'static str,
    /// Its colour.
    pub ink: Ink,
    /// What it means.
    pub text: String,
}

impl Key {
    /// A key.
    pub(super) fn new(shape: &'static str, ink: Ink, text: impl Into<String>) -> Self {
        Self { shape, ink, text: text.into() }
    }
}

/// A plot with a title, what its colours mean, and a remark.
pub(super) fn figure(title: &str, plot: &Plot, keys: &[Key], about: &str) -> Result<String> {
    let mut caption = element("b", &escape(title));
    if plot.y.is_logarithmic() {
        caption += &element("small", "(logarithmic)");
    }
    let key = |Key { shape, ink, text }: &Key| {
        let (ink, text) = (ink.variable(), escape(text));
        element("span", &format!("<i class=\"{shape}\" style=\"color: {ink}\"></i>{text}"))
    };
    if !keys.is_empty() {
        let keys: Vec<String> = keys.iter().map(key).collect();
        caption += &element("span class=\"keys\"", &keys.concat());
    }
    let about = if about.is_empty() { String::new() } else { remark(about) };
    let parts = [element("figcaption", &caption), plot.svg_with(keys)?, about];
    Ok(element("figure", &parts.concat()))
}

/// The whole document; `head` is HTML.
pub(super) fn document(title: &str, head: &str, sections: &[Section]) -> String {
    let body: Vec<String> = sections.iter().map(Section::html).collect();
    let body = [head, &contents(sections), &body.concat()].concat();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        escape(title)
    )
}

// The series are Okabe and Ito's colours, darkened or lightened until they stand out on the paper.
const STYLE: &str = include_str!("style.css");

/// Sorts tables and tells the points of plots. The page needs it for nothing else.
pub(super) const SCRIPT: &str = include_str!("page.js");

/// Nothing is loaded, and no script runs but [`SCRIPT`], which its SHA-256 names.
pub(super) const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; \
                                 script-src 'sha256-3Nx0W4PUR78uwB07z5RcQ3IySUyK6p5JKwbf71oyXdA='; base-uri 'none'; form-action 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1.000"),
            (1.02345, "1.023"),
            (999.96, "1,000"),
            (12345.6, "12,350"),
            (1_234_567.0, "1,235,000"),
            (-0.5, "\u{2212}0.5000"),
            (0.1234, "0.1234"),
            (0.12, "0.1200"),
            (0.00123456, "0.001235"),
            (1.5e-5, "1.50e\u{2212}5"),
            (1.5e9, "1.50e9"),
            (f64::NAN, "\u{2013}"),
            (f64::INFINITY, "\u{2013}"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(number_or_nothing(None), "\u{2013}");
        assert_eq!((quantity(50_213.0), quantity(50_213.5)), ("50,213".into(), "50,213.5".into()));
    }

    #[test]
    fn shares_near_the_ends_do_not_read_as_the_ends() {
        for (share, text) in [
            (0.0, "0.0"),
            (1.0, "100.0"),
            (0.934, "93.4"),
            (0.93, "93.0"),
            (0.0001, "< 0.1"),
            (0.9999, "> 99.9"),
        ] {
            assert_eq!(percent(share), format!("{text}\u{a0}%"));
        }
        assert_eq!(percent(f64::NAN), "\u{2013}");
        assert_eq!((level(0.9), level(1.0 - 0.9)), ("90\u{a0}%".into(), "10\u{a0}%".into()));
    }

    #[test]
    fn text_cannot_leave_its_element() {
        let hostile = "<b>&\"'\u{1}</b>";
        assert_eq!(escape(hostile), "&lt;b&gt;&amp;&quot;&#39;\u{fffd}&lt;/b&gt;");
        for html in [
            paragraph(hostile),
            bullets("notes", &[hostile.into()]),
            table(&[hostile], &[vec![hostile.into(), hostile.into()]]),
            section("s", hostile, String::new()).html(),
            contents(&[section("s", hostile, String::new()), section("t", "t", String::new())]),
        ] {
            assert!(!html.contains("<b>"), "{html}");
        }
    }

    #[test]
    fn pairs_of_backticks_are_code() {
        assert_eq!(prose("a `b<` c"), "a <code>b&lt;</code> c");
        assert_eq!(prose("a `b` `c"), "a <code>b</code> `c");
        assert_eq!(prose("`"), "`");
        assert_eq!(prose("``"), "<code></code>");
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (1..=5).map(|i| format!("x{i}")).collect();
        assert_eq!(listed(&names, 5), "x1, x2, x3, x4, x5");
        assert_eq!(listed(&names, 2), "x1, x2 and 3 more");
        assert_eq!(
            (plural(1, "chain"), plural(2000, "chain")),
            ("1 chain".into(), "2,000 chains".into())
        );
    }
}
