//! One line about how far something is, in as many columns as there are.

use thinfer::train::Record;

use crate::text_table::number;

/// Columns of a bar, at most and at least; with room for fewer there is none.
const BAR: [usize; 2] = [20, 6];

/// How far something is.
pub(crate) struct Line {
    pub(crate) name: String,
    /// The share that is done.
    pub(crate) share: f64,
    pub(crate) pieces: Pieces,
}

/// What there is to say besides.
#[derive(Clone, Default)]
pub(crate) struct Pieces {
    pub(crate) epoch: Option<String>,
    pub(crate) loss: Option<String>,
    pub(crate) metric: Option<String>,
    pub(crate) pruned: Option<String>,
    pub(crate) left: Option<String>,
}

impl Pieces {
    fn text(&self) -> String {
        let all = [&self.epoch, &self.loss, &self.metric, &self.pruned, &self.left];
        all.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ")
    }
}

/// The epoch of a record, of so many.
pub(crate) fn epoch(record: &Record, epochs: usize) -> String {
    format!("epoch {}/{epochs}", record.epoch + 1)
}

/// Its loss.
pub(crate) fn loss(record: &Record) -> String {
    format!("loss {}", number(record.loss))
}

/// The share of test images that are right.
pub(crate) fn accuracy(share: f64) -> String {
    format!("test {:.1} %", 100.0 * share)
}

/// The inputs that are still read.
pub(crate) fn inputs(record: &Record) -> String {
    match record.live_inputs {
        1 => "1 input".to_owned(),
        many => format!("{many} inputs"),
    }
}

/// The pruned share of all parameters, where anything is.
pub(crate) fn pruned(record: &Record) -> Option<String> {
    (record.sparsity > 0.0).then(|| format!("{:.1} % pruned", 100.0 * record.sparsity))
}

impl Line {
    /// With a bar, in so many columns: what is least needed is left out where it is too long.
    pub(crate) fn fit(mut self, columns: usize) -> String {
        // A terminal that is full to the last column may begin a new line.
        let columns = columns.saturating_sub(1);
        let length =
            |line: &Line| format!("{}{}", line.before(), line.pieces.text()).chars().count();
        for leave_out in [|p: &mut Pieces| p.pruned = None, |p: &mut Pieces| p.metric = None] {
            if length(&self) > columns {
                leave_out(&mut self.pieces);
            }
        }
        let room = columns.saturating_sub(length(&self) + "[] ".len());
        let bar = if room < BAR[1] { String::new() } else { self.bar(room.min(BAR[0])) };
        let text = format!("{}{bar}{}", self.before(), self.pieces.text());
        text.chars().take(columns).collect()
    }

    /// Without a bar, for a file.
    pub(crate) fn plain(&self) -> String {
        let name = if self.name.is_empty() { String::new() } else { format!("{}: ", self.name) };
        let share = if self.pieces.epoch.is_none() {
            format!("{}, ", self.percent())
        } else {
            String::new()
        };
        format!("{name}{share}{}", self.pieces.text())
    }

    fn before(&self) -> String {
        if self.pieces.epoch.is_some() {
            return format!("{} ", self.name);
        }
        format!("{} {} ", self.name, self.percent())
    }

    fn percent(&self) -> String {
        format!("{:.0} %", (100.0 * self.share).floor())
    }

    fn bar(&self, columns: usize) -> String {
        let done = ((self.share.clamp(0.0, 1.0) * columns as f64) as usize).min(columns);
        let head = usize::from(done < columns);
        format!("[{}{}{}] ", "=".repeat(done), ">".repeat(head), " ".repeat(columns - done - head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> Pieces {
        let some = |text: &str| Some(text.to_owned());
        Pieces {
            epoch: some("epoch 900/4000"),
            loss: some("loss 0.1234"),
            metric: some("test 93.1 %"),
            pruned: some("81.2 % pruned"),
            left: some("12 s left"),
        }
    }

    fn line(pieces: Pieces) -> Line {
        Line { name: "chain 0".into(), share: 0.225, pieces }
    }

    #[test]
    fn a_line_fits_however_narrow_the_terminal_is() {
        assert_eq!(
            line(pieces()).fit(120),
            "chain 0 [====>               ] epoch 900/4000, loss 0.1234, test 93.1 %, 81.2 % pruned, 12 s left"
        );
        assert_eq!(
            line(pieces()).fit(80),
            "chain 0 epoch 900/4000, loss 0.1234, test 93.1 %, 81.2 % pruned, 12 s left"
        );
        assert_eq!(
            line(pieces()).fit(72),
            "chain 0 [==>      ] epoch 900/4000, loss 0.1234, test 93.1 %, 12 s left"
        );
        for columns in 0..100 {
            assert!(line(pieces()).fit(columns).chars().count() <= columns.saturating_sub(1));
        }
    }

    #[test]
    fn without_epochs_the_share_is_said() {
        let left = Pieces { left: Some("3 s left".into()), ..Pieces::default() };
        assert_eq!(line(left.clone()).fit(40), "chain 0 22 % [===>           ] 3 s left");
        assert_eq!(line(left).plain(), "chain 0: 22 %, 3 s left");
        let nameless = Line { name: String::new(), ..line(pieces()) };
        assert!(nameless.plain().starts_with("epoch 900/4000, loss"));
    }
}
