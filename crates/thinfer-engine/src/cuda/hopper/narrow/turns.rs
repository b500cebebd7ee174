//! A model of the barriers of `kernels/narrow.cu`: every order in which fetches and pairs of groups
//! can go on is tried.

use std::collections::BTreeSet;

use super::in_turn;

/// More chunks than the stages and two pairs can have under way.
const CHUNKS: u8 = 9;

/// Barriers count how often they have completed. A wait for a parity passes where the turn under
/// way has the other one.
fn passes(completed: u8, parity: u8) -> bool {
    completed % 2 != parity
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    chunk: u8,
    plane: u8,
    began: bool,
    /// Whether it is multiplying what it waited for.
    busy: bool,
    turns: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// Planes that were asked for, and those of them that are still on their way.
    asked: u8,
    under_way: BTreeSet<u8>,
    full: Vec<u8>,
    empty: Vec<u8>,
    go: [u8; 2],
    pairs: [Pair; 2],
}

struct Model {
    planes: u8,
    stages: u8,
    in_turn: bool,
}

impl Model {
    fn start(&self) -> State {
        let none = vec![0; usize::from(self.stages)];
        let pairs = [0, 1].map(|chunk| Pair { chunk, ..Pair::default() });
        let (full, empty) = (none.clone(), none);
        State { asked: 0, under_way: BTreeSet::new(), full, empty, go: [0; 2], pairs }
    }

    /// The stage of a plane and how often it was used before.
    fn place(&self, number: u8) -> (usize, u8) {
        (usize::from(number % self.stages), number / self.stages)
    }

    /// All states that can come next, or what went wrong.
    fn next(&self, state: &State) -> Result<Vec<State>, String> {
        let mut all = Vec::new();
        let (stage, turn) = self.place(state.asked);
        if state.asked < CHUNKS * self.planes && passes(state.empty[stage], (turn % 2) ^ 1) {
            if state.under_way.iter().any(|number| self.place(*number).0 == stage) {
                return Err(format!("plane {} goes where one is on its way", state.asked));
            }
            let mut next = state.clone();
            next.under_way.insert(state.asked);
            next.asked += 1;
            all.push(next);
        }
        for number in &state.under_way {
            let mut next = state.clone();
            next.under_way.remove(number);
            next.full[self.place(*number).0] += 1;
            all.push(next);
        }
        for pair in 0..2 {
            all.extend(self.advance(state, pair)?);
        }
        Ok(all)
    }

    fn advance(&self, state: &State, which: usize) -> Result<Option<State>, String> {
        let pair = &state.pairs[which];
        if pair.chunk >= CHUNKS {
            return Ok(None);
        }
        let mut next = state.clone();
        let (stage, turn) = self.place(pair.chunk * self.planes + pair.plane);
        let moved = &mut next.pairs[which];
        if !pair.began {
            if self.in_turn && !passes(state.go[which], (pair.turns + 1 + which as u8) % 2) {
                return Ok(None);
            }
            moved.began = true;
            moved.turns += 1;
        } else if !pair.busy {
            if !passes(state.full[stage], turn % 2) {
                return Ok(None);
            }
            if state.full[stage] != turn + 1 {
                return Err(format!("pair {which} reads chunk {} too early", pair.chunk));
            }
            moved.busy = true;
            if pair.plane + 1 == self.planes {
                next.go[which ^ 1] += u8::from(self.in_turn);
            }
        } else {
            moved.busy = false;
            moved.plane += 1;
            if moved.plane == self.planes {
                *moved = Pair { chunk: pair.chunk + 2, turns: pair.turns, ..Pair::default() };
            }
            next.empty[stage] += 1;
        }
        Ok(Some(next))
    }

    /// Goes through all states; what goes wrong in one of them is the result.
    fn explore(&self) -> Result<(), String> {
        let mut seen = BTreeSet::from([self.start()]);
        let mut left = vec![self.start()];
        while let Some(state) = left.pop() {
            let next = self.next(&state)?;
            if next.is_empty() && state.pairs.iter().any(|pair| pair.chunk < CHUNKS) {
                return Err("nobody can go on".to_owned());
            }
            left.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
        }
        Ok(())
    }
}

#[test]
fn no_pair_reads_what_has_not_come() {
    for planes in 1..=3 {
        for stages in 2..=4 {
            let in_turn = in_turn(planes.into(), stages.into());
            let found = Model { planes, stages, in_turn }.explore();
            assert_eq!(found, Ok(()), "{planes} planes, {stages} stages");
        }
    }
}

/// One plane and three stages, as 64 channels of 32 by 32 pixels have: a fault on a GPU that
/// several runs shared.
#[test]
fn without_turns_a_fetch_that_is_overtaken_is_read_too_early() {
    let found = Model { planes: 1, stages: 3, in_turn: false }.explore();
    assert!(found.is_err());
}
