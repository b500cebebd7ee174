//! A graph while it is being written: nodes, constants and names that are all different.

use std::collections::BTreeSet;

use super::proto::{
    Attribute, Dimension, FLOAT, GraphMessage, INT64, Kind, NodeMessage, Tensor, TensorKind,
    TensorShape, ValueInfo,
};

/// What the first axis of every input and output is called.
const ROWS: &str = "rows";

/// A graph in the making. Values are known by their names.
pub(super) struct Graph {
    message: GraphMessage,
    taken: BTreeSet<String>,
}

impl Graph {
    /// An empty graph. `outputs` are kept free: inputs of the same name get another one.
    pub(super) fn new(name: &str, outputs: &[&str]) -> Self {
        let message = GraphMessage { name: name.to_owned(), ..GraphMessage::default() };
        Self { message, taken: outputs.iter().map(|name| (*name).to_owned()).collect() }
    }

    /// An input of `shape` for every row, `FLOAT` or `INT64`; gives its name.
    pub(super) fn input(&mut self, name: &str, kind: i32, shape: &[usize], about: &str) -> String {
        let name = self.fresh(name);
        self.message.input.push(value_info(&name, kind, shape, about));
        name
    }

    /// Makes `value` an output under a name that was kept free.
    pub(super) fn output(&mut self, value: &str, name: &str, shape: &[usize], about: &str) {
        for node in &mut self.message.node {
            let named = node.input.iter_mut().chain(&mut node.output).filter(|n| *n == value);
            named.for_each(|n| name.clone_into(n));
        }
        self.message.output.push(value_info(name, FLOAT, shape, about));
    }

    /// A constant of numbers.
    pub(super) fn floats(&mut self, name: &str, shape: &[usize], values: &[f32]) -> String {
        let raw_data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(name, FLOAT, shape, raw_data)
    }

    /// A constant list of whole numbers.
    pub(super) fn integers(&mut self, name: &str, values: &[i64]) -> String {
        let raw_data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(name, INT64, &[values.len()], raw_data)
    }

    /// An operation on values; gives the name of its result.
    pub(super) fn node(
        &mut self,
        name: &str,
        op: &str,
        inputs: &[&str],
        attribute: Vec<Attribute>,
    ) -> String {
        let name = self.fresh(name);
        self.message.node.push(NodeMessage {
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: vec![name.clone()],
            // Some readers keep operations and values under one set of names.
            name: format!("{name}/{op}"),
            op_type: op.to_owned(),
            attribute,
        });
        name
    }

    pub(super) fn finish(self) -> GraphMessage {
        self.message
    }

    fn constant(
        &mut self,
        name: &str,
        data_type: i32,
        shape: &[usize],
        raw_data: Vec<u8>,
    ) -> String {
        let name = self.fresh(name);
        let dims = shape.iter().map(|d| *d as i64).collect();
        self.message.initializer.push(Tensor { dims, data_type, name: name.clone(), raw_data });
        name
    }

    /// `wanted`, with underscores after it where the name is taken.
    fn fresh(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        while !self.taken.insert(name.clone()) {
            name.push('_');
        }
        name
    }
}

fn value_info(name: &str, elem_type: i32, shape: &[usize], about: &str) -> ValueInfo {
    let rows = Dimension { name: Some(ROWS.to_owned()), length: None };
    let lengths = shape.iter().map(|d| Dimension { length: Some(*d as i64), name: None });
    let dim = std::iter::once(rows).chain(lengths).collect();
    let tensor = TensorKind { elem_type, shape: Some(TensorShape { dim }) };
    let kind = Some(Kind { tensor: Some(tensor) });
    ValueInfo { name: name.to_owned(), kind, doc_string: about.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_that_is_called_like_an_output_gets_another_name() {
        let mut graph = Graph::new("g", &["mean"]);
        let input = graph.input("mean", FLOAT, &[1], "");
        assert_eq!(input, "mean_");
        let twice = graph.node("twice", "Add", &[&input, &input], Vec::new());
        let again = graph.node("again", "Relu", &[&twice], Vec::new());
        assert_eq!(graph.node("again", "Relu", &[&again], Vec::new()), "again_");
        graph.output(&twice, "mean", &[1], "");
        let message = graph.finish();
        assert_eq!(message.node[0].output, ["mean"]);
        assert_eq!(message.node[1].input, ["mean"]);
        assert_eq!(message.output[0].name, "mean");
    }
}
