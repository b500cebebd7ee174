//! The part of Python's pickle format that the CIFAR files are written in.
//!
//! Nothing is executed: names of functions are kept as names, calls as the name and its arguments.
//! Values refer to the bytes they were read from.

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    Bytes(&'a [u8]),
    List(Vec<Value<'a>>),
    Tuple(Vec<Value<'a>>),
    Dict(Vec<(Value<'a>, Value<'a>)>),
    /// A class or a function: module and name.
    Global(&'a [u8], &'a [u8]),
    /// What a call with arguments would have given, and the state set afterwards.
    Object {
        made_by: Box<Value<'a>>,
        state: Option<Box<Value<'a>>>,
    },
}

/// Values inside values beyond this depth are refused: dropping them would exhaust the stack.
const DEEPEST: usize = 16;

impl<'a> Value<'a> {
    /// The value of a dictionary under `key`.
    pub(super) fn get(&self, key: &str) -> Option<&Value<'a>> {
        let Value::Dict(pairs) = self else { return None };
        let found = pairs.iter().find(|(k, _)| *k == Value::Bytes(key.as_bytes()));
        found.map(|(_, value)| value)
    }

    /// A numpy array of bytes with two dimensions: rows, columns and values by rows.
    pub(super) fn byte_matrix(&self) -> Option<(usize, usize, &'a [u8])> {
        let Value::Object { made_by, state: Some(state) } = self else { return None };
        let Value::Global(_, b"_reconstruct") = **made_by else { return None };
        // numpy's state: version, shape, type, whether columns come first, bytes.
        let Value::Tuple(state) = &**state else { return None };
        let [_, Value::Tuple(shape), kind, Value::Bool(false), Value::Bytes(bytes)] = &state[..]
        else {
            return None;
        };
        let Value::Object { made_by, .. } = kind else { return None };
        let Value::Global(_, b"dtype") = **made_by else { return None };
        let [Value::Int(rows), Value::Int(columns)] = shape[..] else { return None };
        let (rows, columns) = (usize::try_from(rows).ok()?, usize::try_from(columns).ok()?);
        // One byte a value, whatever the type says: other types would not fit.
        (rows.checked_mul(columns)? == bytes.len()).then_some((rows, columns, bytes))
    }

    /// A list of whole numbers.
    pub(super) fn integers(&self) -> Option<Vec<i64>> {
        let Value::List(values) = self else { return None };
        let integer = |value: &Value| match value {
            Value::Int(value) => Some(*value),
            _ => None,
        };
        values.iter().map(integer).collect()
    }
}

/// Something on the machine's stack: a value with its depth, or a mark.
enum Item<'a> {
    Value(Value<'a>, usize),
    Mark,
}

struct Machine<'a> {
    bytes: &'a [u8],
    stack: Vec<Item<'a>>,
    memo: Vec<(u32, Value<'a>)>,
}

/// Reads one value. The problem is in words that follow a file's name.
pub(super) fn parse(bytes: &[u8]) -> Result<Value<'_>, String> {
    let mut machine = Machine { bytes, stack: Vec::new(), memo: Vec::new() };
    loop {
        if let Some(value) = machine.step()? {
            return Ok(value);
        }
    }
}

impl<'a> Machine<'a> {
    /// Executes one instruction; gives the value after the last one.
    fn step(&mut self) -> Result<Option<Value<'a>>, String> {
        let code = self.take(1)?[0];
        match code {
            // Protocol
            0x80 => drop(self.take(1)?),
            b'.' => return self.pop().map(|(value, _)| Some(value)),
            // Constants
            b'N' => self.push(Value::None, 0)?,
            0x88 => self.push(Value::Bool(true), 0)?,
            0x89 => self.push(Value::Bool(false), 0)?,
            b'K' => self.integer(1)?,
            b'M' => self.integer(2)?,
            b'J' => {
                let value = self.number(4)? as u32 as i32;
                self.push(Value::Int(value.into()), 0)?;
            }
            b'U' | b'C' => self.string(1)?,
            b'T' | b'X' | b'B' => self.string(4)?,
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(Value::Global(module, name), 0)?;
            }
            // Containers
            b'}' => self.push(Value::Dict(Vec::new()), 0)?,
            b']' => self.push(Value::List(Vec::new()), 0)?,
            b')' => self.push(Value::Tuple(Vec::new()), 0)?,
            b'(' => self.stack.push(Item::Mark),
            0x85..=0x87 => self.tuple(usize::from(code) - 0x84)?,
            b't' => {
                let count = self.since_mark()?;
                self.tuple(count)?;
                self.take_mark();
            }
            b'a' => self.append(1)?,
            b'e' => {
                let count = self.since_mark()?;
                self.append(count)?;
            }
            b's' => self.set(2)?,
            b'u' => {
                let count = self.since_mark()?;
                self.set(count)?;
            }
            // Calls, kept and not made
            b'R' => {
                let (_, made_by) = (self.pop()?, self.pop()?);
                let object = Value::Object { made_by: Box::new(made_by.0), state: None };
                self.push(object, made_by.1 + 1)?;
            }
            b'b' => {
                let (given, depth) = self.pop()?;
                let (value, below) = self.pop()?;
                let Value::Object { made_by, state: None } = value else {
                    return Err("sets the state of something that has none".into());
                };
                let object = Value::Object { made_by, state: Some(Box::new(given)) };
                self.push(object, depth.max(below) + 1)?;
            }
            // Memory
            b'q' => self.remember(1)?,
            b'r' => self.remember(4)?,
            b'h' => self.recall(1)?,
            b'j' => self.recall(4)?,
            other => {
                return Err(format!(
                    "uses the pickle instruction {other:#04x}, which CIFAR does not"
                ));
            }
        }
        Ok(None)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            return Err("ends too early".into());
        };
        self.bytes = rest;
        Ok(taken)
    }

    /// A little-endian number without a sign.
    fn number(&mut self, bytes: usize) -> Result<usize, String> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte)))
    }

    fn line(&mut self) -> Result<&'a [u8], String> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n').ok_or("ends too early")?;
        let line = self.take(end + 1)?;
        Ok(&line[..end])
    }

    fn integer(&mut self, bytes: usize) -> Result<(), String> {
        let value = self.number(bytes)? as i64;
        self.push(Value::Int(value), 0)
    }

    fn string(&mut self, bytes: usize) -> Result<(), String> {
        let len = self.number(bytes)?;
        let text = self.take(len)?;
        self.push(Value::Bytes(text), 0)
    }

    fn push(&mut self, value: Value<'a>, depth: usize) -> Result<(), String> {
        if depth > DEEPEST {
            return Err("holds values inside values, too deep for a CIFAR file".into());
        }
        self.stack.push(Item::Value(value, depth));
        Ok(())
    }

    fn pop(&mut self) -> Result<(Value<'a>, usize), String> {
        match self.stack.pop() {
            Some(Item::Value(value, depth)) => Ok((value, depth)),
            _ => Err("takes a value where there is none".into()),
        }
    }

    /// How many values are above the last mark.
    fn since_mark(&self) -> Result<usize, String> {
        let above = self.stack.iter().rev().position(|item| matches!(item, Item::Mark));
        above.ok_or_else(|| "takes a mark where there is none".into())
    }

    /// Takes the mark away under the value on top.
    fn take_mark(&mut self) {
        if let Some(top) = self.stack.pop() {
            self.stack.pop();
            self.stack.push(top);
        }
    }

    /// The last values, in the order they came in, and the deepest of their depths.
    fn values(&mut self, count: usize) -> Result<(Vec<Value<'a>>, usize), String> {
        let mut deepest = 0;
        let mut values = Vec::new();
        for _ in 0..count {
            let (value, depth) = self.pop()?;
            deepest = deepest.max(depth);
            values.push(value);
        }
        values.reverse();
        Ok((values, deepest))
    }

    fn tuple(&mut self, count: usize) -> Result<(), String> {
        let (values, depth) = self.values(count)?;
        self.push(Value::Tuple(values), depth + 1)
    }

    /// What is below the last values, with a mark in between where `marked`.
    fn container(&mut self, marked: bool) -> Result<(Value<'a>, usize), String> {
        if marked {
            self.stack.pop();
        }
        self.pop()
    }

    fn append(&mut self, count: usize) -> Result<(), String> {
        let (values, depth) = self.values(count)?;
        let marked = matches!(self.stack.last(), Some(Item::Mark));
        match self.container(marked)? {
            (Value::List(mut list), below) => {
                list.extend(values);
                self.push(Value::List(list), below.max(depth + 1))
            }
            _ => Err("appends to something that is no list".into()),
        }
    }

    fn set(&mut self, count: usize) -> Result<(), String> {
        let (values, depth) = self.values(count)?;
        let marked = matches!(self.stack.last(), Some(Item::Mark));
        let (Value::Dict(mut pairs), below) = self.container(marked)? else {
            return Err("sets a key of something that is no dictionary".into());
        };
        let mut values = values.into_iter();
        while let Some(key) = values.next() {
            let value = values.next().ok_or("has a key without a value")?;
            pairs.push((key, value));
        }
        self.push(Value::Dict(pairs), below.max(depth + 1))
    }

    /// Remembers what is on top. Containers are left out: they are never used twice in these
    /// files, and copies of copies would grow without bound.
    fn remember(&mut self, bytes: usize) -> Result<(), String> {
        let name = self.number(bytes)? as u32;
        match self.stack.last() {
            Some(Item::Value(Value::Bytes(text), _)) => self.memo.push((name, Value::Bytes(text))),
            Some(Item::Value(Value::Global(module, global), _)) => {
                self.memo.push((name, Value::Global(module, global)));
            }
            Some(_) => {}
            None => return Err("remembers a value where there is none".into()),
        }
        Ok(())
    }

    fn recall(&mut self, bytes: usize) -> Result<(), String> {
        let name = self.number(bytes)? as u32;
        let found = self.memo.iter().rev().find(|(known, _)| *known == name);
        let value = found.map(|(_, value)| value.clone());
        self.push(value.ok_or("refers to a value that was not kept")?, 0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A batch as Python 2's cPickle wrote the official files, with `rows` images of `columns`
    /// bytes, instruction by instruction.
    pub(in super::super) fn batch(
        key: &str,
        labels: &[u8],
        columns: usize,
        pixels: &[u8],
    ) -> Vec<u8> {
        let mut out =
            b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U".to_vec();
        out.push(key.len() as u8);
        out.extend(key.as_bytes());
        out.extend(b"q\x04]q\x05(");
        labels.iter().for_each(|label| out.extend([b'K', *label]));
        out.extend(
            b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08",
        );
        out.extend(b"K\x00\x85U\x01bq\x09\x87Rq\x0a(K\x01");
        for size in [labels.len(), columns] {
            out.push(b'M');
            out.extend((size as u16).to_le_bytes());
        }
        out.extend(b"\x86cnumpy\ndtype\nq\x0bU\x02u1K\x00K\x01\x87Rq\x0c(K\x03U\x01|NNN");
        out.extend(b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T");
        out.extend((pixels.len() as u32).to_le_bytes());
        out.extend(pixels);
        out.extend(b"tbU\x09filenamesq\x0d]q\x0e(U\x05a.pngq\x0fh\x09eu.");
        out
    }

    #[test]
    fn a_batch_of_cifar_is_read() {
        let bytes = batch("labels", &[3, 9], 3, b"abcdef");
        let value = parse(&bytes).unwrap();
        assert_eq!(value.get("labels").unwrap().integers(), Some(vec![3, 9]));
        assert_eq!(value.get("data").unwrap().byte_matrix(), Some((2, 3, &b"abcdef"[..])));
        let names = Value::List(vec![Value::Bytes(b"a.png"), Value::Bytes(b"b")]);
        assert_eq!(value.get("filenames"), Some(&names), "`b` was remembered and recalled");
        assert_eq!(value.get("fine_labels"), None);
    }

    #[test]
    fn numbers_and_small_containers_are_read() {
        let value = parse(b"\x80\x02(K\xffM\x01\x02J\xfe\xff\xff\xff\x88N)]K\x01at.").unwrap();
        let expected = [
            Value::Int(255),
            Value::Int(513),
            Value::Int(-2),
            Value::Bool(true),
            Value::None,
            Value::Tuple(Vec::new()),
            Value::List(vec![Value::Int(1)]),
        ];
        assert_eq!(value, Value::Tuple(expected.to_vec()));
        let value = parse(b"}U\x01aK\x07s.").unwrap();
        assert_eq!(value.get("a"), Some(&Value::Int(7)));
    }

    #[test]
    fn a_matrix_whose_size_is_wrong_is_none() {
        let bytes = batch("labels", &[3, 9], 3, b"abcde");
        assert_eq!(parse(&bytes).unwrap().get("data").unwrap().byte_matrix(), None);
    }

    #[test]
    fn what_is_no_pickle_of_cifar_is_refused() {
        let deep = [b"N".as_slice(), &[0x85; 40], b"."].concat();
        let cases: [(&[u8], &str); 11] = [
            (b"", "ends too early"),
            (b"h\x01.", "was not kept"),
            (b"\xffhello", "0xff"),
            (b"\x80\x02U\x05ab.", "ends too early"),
            (b"T\xff\xff\xff\xffab", "ends too early"),
            (b".", "takes a value where there is none"),
            (b"e", "takes a mark where there is none"),
            (b"N(K\x01K\x02u.", "no dictionary"),
            (b"K\x01(K\x02e.", "no list"),
            (b"cposix\nsystem\nK\x00b.", "has none"),
            (&deep, "too deep"),
        ];
        for (bytes, expected) in cases {
            let text = parse(bytes).unwrap_err();
            assert!(text.contains(expected), "{bytes:?}: {text}");
        }
        // A call is kept as a name; what it would give is never made.
        let object = parse(b"cposix\nsystem\n(U\x02lstR.").unwrap();
        let made_by = Box::new(Value::Global(b"posix", b"system"));
        assert_eq!(object, Value::Object { made_by, state: None });
        assert_eq!(object.byte_matrix(), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }

        /// Random instructions reach further than random bytes.
        #[test]
        fn no_instructions_make_it_panic(codes in prop::collection::vec(
            prop::sample::select(b"N\x88K\x01U\x01ac\n\n}])(\x85\x86\x87taesuRbq\x00h\x00.".to_vec()),
            0..200,
        )) {
            let _ = parse(&codes).map(|value| (value.byte_matrix(), value.integers()));
        }

        #[test]
        fn a_batch_with_one_byte_changed_does_not_make_it_panic(at in 0usize..230, byte: u8) {
            let mut bytes = batch("labels", &[3, 9], 3, b"abcdef");
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(value) = parse(&bytes) {
                let _ = value.get("data").map(Value::byte_matrix);
            }
        }
    }
}
