//! Dates and times: which way round a column has them, and what they are as numbers.

use serde::{Deserialize, Serialize};

use super::dialect::is_dash;

/// Which way round the numbers of a date are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// 2024-01-31.
    YearFirst,
    /// 31.1.2024.
    DayFirst,
    /// 1/31/2024.
    MonthFirst,
}

impl Order {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Order::YearFirst => "year first",
            Order::DayFirst => "day first",
            Order::MonthFirst => "month first",
        }
    }

    /// A day, by its number since the beginning of 1970, as it is written in this order.
    pub fn text(self, day: i64) -> String {
        let (year, month, day) = civil(day);
        match self {
            Order::YearFirst => format!("{year}-{month:02}-{day:02}"),
            Order::DayFirst => format!("{day}.{month}.{year}"),
            Order::MonthFirst => format!("{month}/{day}/{year}"),
        }
    }
}

/// A number that is made of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Days since the beginning of 1970, with the time of day as a fraction.
    Days,
    /// The year.
    Year,
    /// The sine of the place in the year, a whole turn a year.
    YearSine,
    /// The cosine of the same.
    YearCosine,
    /// The sine of the place in the week, a whole turn a week from Monday on.
    WeekSine,
    /// The cosine of the same.
    WeekCosine,
    /// 1 on Saturdays and Sundays, 0 on other days.
    Weekend,
    /// The sine of the time of day, a whole turn a day.
    DaySine,
    /// The cosine of the same.
    DayCosine,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 9] = [
        Part::Days,
        Part::Year,
        Part::YearSine,
        Part::YearCosine,
        Part::WeekSine,
        Part::WeekCosine,
        Part::Weekend,
        Part::DaySine,
        Part::DayCosine,
    ];

    /// What a design column of it is called behind the name of the variable.
    pub fn name(self) -> &'static str {
        match self {
            Part::Days => "days",
            Part::Year => "year",
            Part::YearSine => "sine of the year",
            Part::YearCosine => "cosine of the year",
            Part::WeekSine => "sine of the week",
            Part::WeekCosine => "cosine of the week",
            Part::Weekend => "weekend",
            Part::DaySine => "sine of the day",
            Part::DayCosine => "cosine of the day",
        }
    }

    /// Its value at so many days since the beginning of 1970.
    pub fn of(self, days: f64) -> f64 {
        let whole = days.floor();
        let turn = |share: f64| std::f64::consts::TAU * share;
        let (year, month, day) = civil(whole as i64);
        let in_year = || (day_of_year(year, month, day) - 1) as f64 / 365.25;
        let weekday = (whole as i64 + 3).rem_euclid(7);
        match self {
            Part::Days => days,
            Part::Year => year as f64,
            Part::YearSine => turn(in_year()).sin(),
            Part::YearCosine => turn(in_year()).cos(),
            Part::WeekSine => turn(weekday as f64 / 7.0).sin(),
            Part::WeekCosine => turn(weekday as f64 / 7.0).cos(),
            Part::Weekend => f64::from(u8::from(weekday >= 5)),
            Part::DaySine => turn(days - whole).sin(),
            Part::DayCosine => turn(days - whole).cos(),
        }
    }

    /// Which of them tell something of a column: parts of the calendar that vary, and more than one
    /// day or two.
    pub(super) fn that_vary(days: &[f64]) -> Vec<Part> {
        let count = |of: fn(f64) -> i64| {
            let mut seen: Vec<i64> = days.iter().map(|day| of(*day)).collect();
            seen.sort_unstable();
            seen.dedup();
            seen.len()
        };
        let months = count(|day| civil(day.floor() as i64).1);
        let weekdays = count(|day| (day.floor() as i64 + 3).rem_euclid(7));
        let years = count(|day| civil(day.floor() as i64).0);
        let times = count(|day| ((day - day.floor()) * 86_400.0).round() as i64);
        let tells = |part: &Part| match part {
            Part::Days => true,
            Part::Year => years > 1,
            Part::YearSine | Part::YearCosine => months > 2,
            Part::WeekSine | Part::WeekCosine | Part::Weekend => weekdays > 2,
            Part::DaySine | Part::DayCosine => times > 2,
        };
        Self::ALL.into_iter().filter(tells).collect()
    }
}

/// The order of a column of dates, and whether its cells leave it open; nothing where some cell,
/// but for dashes, is no date.
pub(super) fn order<'a>(cells: impl Iterator<Item = &'a str> + Clone) -> Option<(Order, bool)> {
    let cells = cells.filter(|cell| !is_dash(cell));
    cells.clone().next()?;
    let fits = |order| cells.clone().all(|cell| days(cell, order).is_some());
    if fits(Order::YearFirst) {
        return Some((Order::YearFirst, false));
    }
    match (fits(Order::DayFirst), fits(Order::MonthFirst)) {
        (false, false) => None,
        (true, false) => Some((Order::DayFirst, false)),
        (false, true) => Some((Order::MonthFirst, false)),
        (true, true) => {
            let differs = |cell: &str| days(cell, Order::DayFirst) != days(cell, Order::MonthFirst);
            let is_open = cells.clone().any(differs);
            Some((open_order(&cells), is_open))
        }
    }
}

/// The order of dates that could be either: one on the first of each month has the month first or
/// last; else points and dashes stand behind days, and slashes behind months.
fn open_order<'a>(cells: &(impl Iterator<Item = &'a str> + Clone)) -> Order {
    let number = |cell: &'a str, at: usize| {
        cell.split(['-', '/', '.']).nth(at).and_then(|part| part.trim().parse::<u32>().ok())
    };
    let always_first = |at: usize| cells.clone().all(|cell| number(cell, at) == Some(1));
    let slashes = cells.clone().any(|cell| cell.contains('/'));
    match (always_first(0), always_first(1)) {
        (true, false) => Order::DayFirst,
        (false, true) => Order::MonthFirst,
        _ if slashes => Order::MonthFirst,
        _ => Order::DayFirst,
    }
}

/// Days since the beginning of 1970, with the time of day as a fraction; nothing where the cell is
/// no date of that order. A zone behind the time is not looked at.
pub(super) fn days(cell: &str, order: Order) -> Option<f64> {
    let cell = cell.trim();
    let (date, time) = match cell.find(':') {
        Some(colon) => {
            let before = cell[..colon].trim_end_matches(|c: char| c.is_ascii_digit());
            let date = before.strip_suffix(['T', 't']).unwrap_or(before);
            (date.trim_end_matches([' ', ',']), Some(&cell[before.len()..]))
        }
        None => (cell, None),
    };
    let day = day(date, order)?;
    let share = time.map_or(Some(0.0), time_of_day)?;
    Some(day as f64 + share)
}

fn day(date: &str, order: Order) -> Option<i64> {
    let parts: Vec<&str> =
        date.split(['-', '/', '.', ' ', ',']).filter(|part| !part.is_empty()).collect();
    let parts = match parts[..] {
        [first, ref rest @ ..] if rest.len() == 3 && is_weekday(first) => rest.to_vec(),
        _ => parts,
    };
    if let Some(at) = parts.iter().position(|part| month_name(part).is_some()) {
        let month = month_name(parts[at])?;
        // 5 Jan 2024, and Jan 5, 2024, whichever way round the numbers of others are.
        let ((1, [day, _, year]) | (0, [_, day, year])) = (at, &parts[..]) else { return None };
        return number_of(full_year(year)?, month, number(day, 2)?);
    }
    let separator = date.chars().find(|c| !c.is_ascii_digit())?;
    let same = |c: char| c.is_ascii_digit() || c == separator;
    if !matches!(separator, '-' | '/' | '.') || !date.chars().all(same) {
        return None;
    }
    match (order, &parts[..]) {
        (Order::YearFirst, [year, month, day]) if year.len() == 4 => {
            number_of(number(year, 4)?, number(month, 2)?, number(day, 2)?)
        }
        (Order::YearFirst, [year, month]) if year.len() == 4 && separator == '-' => {
            number_of(number(year, 4)?, number(month, 2)?, 1)
        }
        (Order::DayFirst | Order::MonthFirst, [first, second, year]) => {
            // 1.2.10 is a version.
            let short = year.len() == 2 && separator == '.';
            if (separator == '.' && order == Order::MonthFirst)
                || (short && (first.len() != 2 || second.len() != 2))
            {
                return None;
            }
            let (day, month) =
                if order == Order::DayFirst { (first, second) } else { (second, first) };
            number_of(full_year(year)?, number(month, 2)?, number(day, 2)?)
        }
        _ => None,
    }
}

/// A number of at most so many digits.
fn number(text: &str, most: usize) -> Option<i64> {
    let good = text.len() <= most && text.bytes().all(|b| b.is_ascii_digit());
    good.then(|| text.parse().ok()).flatten()
}

/// A year of four digits, or of two: 70 is 1970, and 69 is 2069.
fn full_year(text: &str) -> Option<i64> {
    match text.len() {
        4 => number(text, 4),
        2 => number(text, 2).map(|year| if year < 70 { 2000 + year } else { 1900 + year }),
        _ => None,
    }
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

fn month_name(text: &str) -> Option<i64> {
    let text = if text.eq_ignore_ascii_case("sept") { "sep" } else { text };
    Some(named(text, &MONTHS)? as i64 + 1)
}

fn is_weekday(text: &str) -> bool {
    named(text, &WEEKDAYS).is_some()
}

/// The place of a name, whole or with three letters.
fn named(text: &str, names: &[&str]) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let is = |name: &&str| **name == text || (text.len() == 3 && name.starts_with(&text));
    names.iter().position(is)
}

/// The share of a day that has passed at a time like `7:05`, `12:30:15.5 PM` or `12:30+02:00`.
fn time_of_day(text: &str) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.'));
    let (clock, rest) = text.split_at(end.unwrap_or(text.len()));
    let rest = rest.trim();
    let mut parts = clock.split(':');
    let hour = number(parts.next()?, 2)?;
    let minute = number(parts.next()?, 2)?;
    let second: f64 = match parts.next() {
        Some(text) if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse().ok()?,
        Some(_) => return None,
        None => 0.0,
    };
    let hour = match rest {
        "am" | "a.m." | "pm" | "p.m." if !(1..=12).contains(&hour) => return None,
        "am" | "a.m." => hour % 12,
        "pm" | "p.m." => hour % 12 + 12,
        _ if is_zone(rest) => hour,
        _ => return None,
    };
    let sound = parts.next().is_none() && hour < 24 && minute < 60 && second < 61.0;
    sound.then(|| (hour as f64 + (minute as f64 + second / 60.0) / 60.0) / 24.0)
}

fn is_zone(text: &str) -> bool {
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == ':');
    matches!(text, "" | "z" | "utc" | "gmt")
        || text.strip_prefix(['+', '-']).is_some_and(|rest| rest.len() >= 2 && digits(rest))
}

/// The number of a day, where there is one.
fn number_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let known = (1000..=3000).contains(&year) && (1..=12).contains(&month);
    (known && day >= 1 && day <= length(year, month)).then(|| days_before(year, month) + day - 1)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// The days of a month.
fn length(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The days from the beginning of 1970 to that of a month.
fn days_before(year: i64, month: i64) -> i64 {
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let of_years = 365 * (year - 1970) + leaps(year - 1) - leaps(1969);
    of_years + (1..month).map(|month| length(year, month)).sum::<i64>()
}

fn day_of_year(year: i64, month: i64, day: i64) -> i64 {
    days_before(year, month) - days_before(year, 1) + day
}

/// Year, month and day by the number of the day.
fn civil(number: i64) -> (i64, i64, i64) {
    let mut year = 1970 + (number as f64 / 365.2425).floor() as i64;
    while days_before(year, 1) > number {
        year -= 1;
    }
    while days_before(year + 1, 1) <= number {
        year += 1;
    }
    let month = (1..=12).rev().find(|month| days_before(year, *month) <= number).unwrap_or(1);
    (year, month, number - days_before(year, month) + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_of_each_order_are_read() {
        // date -u -d 2024-01-31 +%s, divided by 86400.
        const DAY: f64 = 19_753.0;
        for (cell, order, expected) in [
            ("2024-01-31", Order::YearFirst, DAY),
            ("2024/1/31", Order::YearFirst, DAY),
            ("2024.01.31", Order::YearFirst, DAY),
            ("2024-01", Order::YearFirst, DAY - 30.0),
            ("2024-01-31T12:00:00Z", Order::YearFirst, DAY + 0.5),
            ("2024-01-31 06:00", Order::YearFirst, DAY + 0.25),
            ("2024-01-31 12:00:00.000+02:00", Order::YearFirst, DAY + 0.5),
            ("31.1.2024", Order::DayFirst, DAY),
            ("31.01.24", Order::DayFirst, DAY),
            ("31/01/2024 18:00", Order::DayFirst, DAY + 0.75),
            ("31-01-2024", Order::DayFirst, DAY),
            ("1/31/2024", Order::MonthFirst, DAY),
            ("1/31/24 6:00 PM", Order::MonthFirst, DAY + 0.75),
            ("01/31/2024, 12:00 AM", Order::MonthFirst, DAY),
            ("31 Jan 2024", Order::DayFirst, DAY),
            ("Jan 31, 2024", Order::MonthFirst, DAY),
            ("31-JAN-24", Order::DayFirst, DAY),
            ("Wed, 31 January 2024", Order::YearFirst, DAY),
            ("1970-01-01", Order::YearFirst, 0.0),
            ("1969-12-31", Order::YearFirst, -1.0),
            ("2000-02-29", Order::YearFirst, 11_016.0),
        ] {
            assert_eq!(days(cell, order), Some(expected), "{cell}");
        }
        let orders = [Order::YearFirst, Order::DayFirst, Order::MonthFirst];
        for cell in [
            "",
            "2024",
            "1.2.3",
            "1.2.10",
            "10.0.0.1",
            "2024-13-01",
            "2023-02-29",
            "1900-02-29",
            "31.1.24",
            "12:30",
            "red",
            "1-2",
            "555-12-3456",
            "2024-01/31",
            "31 31 2024",
            "May",
            "2024-01-31 25:00",
            "2024-01-31 12:61",
            "2024-01-31 noon",
            "1/2/3",
            "0/0/2024",
            ":",
            "2024-01-31T:00",
            "5 Jan",
            "a:b",
            "-",
            "2024-01-31 13:00 pm",
        ] {
            for order in orders {
                assert_eq!(days(cell, order), None, "{cell}");
            }
        }
    }

    #[test]
    fn the_order_is_decided_over_the_column() {
        let of = |cells: &[&str]| order(cells.iter().copied());
        assert_eq!(of(&["2024-01-05", "-"]), Some((Order::YearFirst, false)));
        assert_eq!(of(&["5/1/2024", "25/1/2024"]), Some((Order::DayFirst, false)));
        assert_eq!(of(&["5/1/2024", "1/25/2024"]), Some((Order::MonthFirst, false)));
        assert_eq!(of(&["5.1.2024", "6.1.2024"]), Some((Order::DayFirst, false)));
        assert_eq!(of(&["5/1/2024", "6/2/2024"]), Some((Order::MonthFirst, true)));
        assert_eq!(of(&["1/5/2024", "1/6/2024"]), Some((Order::DayFirst, true)));
        assert_eq!(of(&["5/1/2024", "6/1/2024"]), Some((Order::MonthFirst, true)));
        assert_eq!(of(&["5-1-2024", "6-2-2024"]), Some((Order::DayFirst, true)));
        assert_eq!(of(&["25/1/2024", "1/25/2024"]), None);
        assert_eq!(of(&["2024-01-05", "red"]), None);
        assert_eq!(of(&["-"]), None);
    }

    #[test]
    fn parts_of_the_calendar_follow_and_those_that_do_not_vary_are_left_out() {
        // A Wednesday, and noon.
        let at = 19_753.5;
        assert_eq!(Part::Days.of(at), at);
        assert_eq!(Part::Year.of(at), 2024.0);
        assert_eq!([Part::Weekend.of(at), Part::Weekend.of(at + 3.0)], [0.0, 1.0]);
        assert!((Part::DayCosine.of(at) + 1.0).abs() < 1e-12);
        assert!(
            (Part::YearSine.of(at) - (std::f64::consts::TAU * 30.0 / 365.25).sin()).abs() < 1e-12
        );
        assert!((Part::WeekSine.of(at) - (std::f64::consts::TAU * 2.0 / 7.0).sin()).abs() < 1e-12);
        let names = |days: &[f64]| Part::that_vary(days).len();
        assert_eq!(names(&[0.0, 7.0]), 1, "always Thursday, in January");
        assert_eq!(names(&[0.0, 1.0, 2.0]), 4, "and the days of a week");
        assert_eq!(names(&[0.1, 1.2, 2.3]), 6, "and the time of day");
        assert_eq!(
            names(&[0.0, 35.0, 70.0, 399.0]),
            4,
            "on Thursdays, in several months and years"
        );
    }

    proptest! {
        #[test]
        fn a_day_that_is_written_is_the_same_day(number in -354_285i64..376_000) {
            for order in [Order::YearFirst, Order::DayFirst, Order::MonthFirst] {
                prop_assert_eq!(days(&order.text(number), order), Some(number as f64));
            }
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,20}") {
            for order in [Order::YearFirst, Order::DayFirst, Order::MonthFirst] {
                let _ = days(&text, order);
            }
        }
    }
}
