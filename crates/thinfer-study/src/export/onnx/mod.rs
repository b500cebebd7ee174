//! One sample, or the average of several, as an ONNX graph.

mod graph;
mod heads;
mod inputs;
mod layers;
mod proto;
mod runtime;

use prost::Message;
use thinfer_data::{Error, Result};
use thinfer_run::run::{Inputs, RunInfo};

use self::graph::Graph;
use self::proto::{Entry, Model, OperatorSet};
use super::part::{Part, target_units};
pub(super) use runtime::outputs_of;

/// Operators of this version, and the version of the file format that came with it.
const OPSET: i64 = 17;
const IR: i64 = 8;
/// No reader takes a longer message.
const MOST_BYTES: usize = i32::MAX as usize;

/// The bytes of a file that answers with the average of `parts`; `about` goes into its metadata.
pub(super) fn to_bytes(info: &RunInfo, parts: &[Part], about: &str) -> Result<Vec<u8>> {
    let [first, ..] = parts else { return Ok(Vec::new()) };
    let outputs = heads::outputs(first.network.loss(), parts.len());
    let mut graph = Graph::new("thinfer", &outputs);
    let used = used_columns(parts);
    let input = match &info.inputs {
        Inputs::Images(images) => inputs::images(&mut graph, images),
        Inputs::Table(table) => inputs::table(&mut graph, &table.schema.encoding, &used),
    };
    let mut raw = Vec::new();
    for part in parts {
        let prefix = if parts.len() == 1 { String::new() } else { part.prefix() };
        let own = match &info.inputs {
            Inputs::Images(_) => input.clone(),
            Inputs::Table(_) => inputs::columns(&mut graph, &input, &used, &part.inputs),
        };
        raw.push(layers::layers(&mut graph, part, &prefix, own)?);
    }
    heads::head(&mut graph, parts, &raw, target_units(info));
    let model = Model {
        ir_version: IR,
        producer_name: "thinfer".to_owned(),
        producer_version: info.thinfer.clone(),
        graph: Some(graph.finish()),
        opset_import: vec![OperatorSet { domain: String::new(), version: OPSET }],
        metadata: vec![Entry { key: "thinfer".to_owned(), value: about.to_owned() }],
    };
    if model.encoded_len() > MOST_BYTES {
        return Err(Error::Data(format!(
            "an ONNX file holds at most 2 GiB, and {} samples need more; export one with --sample",
            parts.len()
        )));
    }
    Ok(model.encode_to_vec())
}

/// The design columns that at least one network reads, ascending.
fn used_columns(parts: &[Part]) -> Vec<u32> {
    let mut used: Vec<u32> = parts.iter().flat_map(|part| &part.inputs).copied().collect();
    used.sort_unstable();
    used.dedup();
    used
}

#[cfg(test)]
mod tests {
    use super::super::graph_io::Fed;
    use super::*;
    use crate::export::part::{Options, Samples, chosen, parts};
    use crate::export::testing::{SMALL, encoding, images, posterior, table};
    use thinfer_core::model::{image_network, mlp};
    use thinfer_data::table::Target;
    use thinfer_engine::Loss;
    use thinfer_run::config::Activation;

    fn written(info: &RunInfo, samples: Samples, fold_norms: bool) -> Model {
        let posterior = posterior(&info.network, 3);
        let options = Options { samples, fold_norms, dense: true, ..Options::default() };
        let parts =
            parts(info, &posterior, &chosen(&posterior, samples).unwrap(), &options).unwrap();
        Model::decode(&to_bytes(info, &parts, "about").unwrap()[..]).unwrap()
    }

    fn shapes(values: &[proto::ValueInfo]) -> Vec<(String, Vec<i64>)> {
        let shape = |value: &proto::ValueInfo| {
            let tensor = value.kind.as_ref().unwrap().tensor.as_ref().unwrap();
            let dims = &tensor.shape.as_ref().unwrap().dim;
            assert_eq!(dims[0].name.as_deref(), Some("rows"));
            (value.name.clone(), dims[1..].iter().map(|d| d.length.unwrap()).collect())
        };
        values.iter().map(shape).collect()
    }

    #[test]
    fn a_graph_of_images_has_one_input_and_names_its_outputs() {
        let info = images(&image_network("wrn-10-1", SMALL, 5).unwrap());
        for (samples, logits) in [(Samples::Last, vec![5]), (Samples::All, vec![3, 5])] {
            for fold in [false, true] {
                let model = written(&info, samples, fold);
                assert_eq!((model.ir_version, model.opset_import[0].version), (8, 17));
                assert_eq!(model.metadata[0].value, "about");
                let graph = model.graph.unwrap();
                assert_eq!(shapes(&graph.input), [("image".to_owned(), vec![3, 8, 8])]);
                let outputs =
                    [("probabilities".to_owned(), vec![5]), ("logits".to_owned(), logits.clone())];
                assert_eq!(shapes(&graph.output), outputs);
                let norms = graph.node.iter().filter(|n| n.op_type == "BatchNormalization");
                let members = if samples == Samples::All { 3 } else { 1 };
                assert_eq!(norms.count(), members * if fold { 4 } else { 7 });
            }
        }
    }

    #[test]
    fn a_graph_of_a_table_reads_the_columns_it_needs_by_their_names() {
        let network =
            mlp(encoding().width(), &[3], Activation::Relu, 1, Loss::gaussian(1.0)).unwrap();
        let info = table(&network, Target::Number { mean: 1.0, sd: 2.0 });
        let posterior = posterior(&network, 2);
        let chosen = chosen(&posterior, Samples::All).unwrap();
        let options = Options { dense: true, ..Options::default() };
        let mut parts = parts(&info, &posterior, &chosen, &options).unwrap();
        // The first reads a number and a level, the second that number and another one.
        for (part, inputs) in parts.iter_mut().zip([vec![0, 2], vec![0, 4]]) {
            let keep: Vec<usize> = inputs.iter().map(|c| *c as usize).collect();
            let (small, map) = network.with_inputs(&keep).unwrap();
            let from = &part.weights.params;
            part.weights.params = map.iter().map(|i| from[*i as usize]).collect();
            (part.network, part.inputs) = (small, inputs);
        }
        let bytes = to_bytes(&info, &parts, "").unwrap();
        let graph = Model::decode(&bytes[..]).unwrap().graph.unwrap();
        // `mean` is an output as well.
        let inputs = ["mean_", "colour", "year"].map(|name| (name.to_owned(), vec![1]));
        assert_eq!(shapes(&graph.input), inputs);
        assert_eq!(
            graph.input[1].doc_string,
            "the level of `colour`: 0 blue, 1 green, 2 red; -1 for any other"
        );
        let fed = vec![
            Fed::Floats(vec![2, 1], vec![1.0, 700.0]),
            Fed::Integers(vec![1, -1]),
            Fed::Floats(vec![2, 1], vec![20_003.0, 20_007.5]),
        ];
        let means = outputs_of(bytes, fed, &["means"]).unwrap().remove(0);
        let variables = info.table().unwrap().schema.encoding.variables();
        let z = |column: usize, value: f64| match &variables[column].kind {
            thinfer_data::table::Kind::Number { mean, sd } => ((value - mean) / sd) as f32,
            thinfer_data::table::Kind::Category { means, sds, .. } => {
                ((value - means[1]) / sds[1]) as f32
            }
            thinfer_data::table::Kind::Date { .. } => panic!("there is no date"),
        };
        let rows = [
            [z(0, 1.0), z(1, 1.0), z(0, 1.0), z(2, 20_003.0)],
            [z(0, 700.0), z(1, 0.0), z(0, 700.0), z(2, 20_007.5)],
        ];
        for (row, x) in rows.iter().enumerate() {
            for (sample, part) in parts.iter().enumerate() {
                let data =
                    thinfer_engine::Dataset::new(2, 0, x[2 * sample..][..2].to_vec(), vec![]);
                let mut y = [0.0];
                thinfer_engine::Plan::new(&part.network, 1)
                    .unwrap()
                    .forward(&part.weights.params, &[], &data.unwrap(), 0..1, &mut y)
                    .unwrap();
                let got = means[2 * row + sample];
                assert!((got - (1.0 + 2.0 * y[0])).abs() < 1e-4, "{got} {y:?}");
            }
        }
    }
}
