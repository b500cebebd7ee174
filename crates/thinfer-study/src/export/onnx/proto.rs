//! The messages of an ONNX file that a thinfer graph needs, with the field numbers of `onnx.proto`.

use prost::Message;

/// Numbers of `TensorProto.DataType`.
pub(super) const FLOAT: i32 = 1;
pub(super) const INT64: i32 = 7;

/// A file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(int64, tag = "1")]
    pub(super) ir_version: i64,
    #[prost(string, tag = "2")]
    pub(super) producer_name: String,
    #[prost(string, tag = "3")]
    pub(super) producer_version: String,
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<GraphMessage>,
    #[prost(message, repeated, tag = "8")]
    pub(super) opset_import: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "14")]
    pub(super) metadata: Vec<Entry>,
}

/// The version of the operators; the empty domain is ONNX's own.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OperatorSet {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(int64, tag = "2")]
    pub(super) version: i64,
}

/// One entry of the metadata.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Entry {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// Nodes in topological order, with constants, inputs and outputs.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GraphMessage {
    #[prost(message, repeated, tag = "1")]
    pub(super) node: Vec<NodeMessage>,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) initializer: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub(super) input: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(super) output: Vec<ValueInfo>,
}

/// One operation.
#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeMessage {
    #[prost(string, repeated, tag = "1")]
    pub(super) input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) output: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) attribute: Vec<Attribute>,
}

/// A setting of an operation. Exactly one value is there, even where it is 0.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(float, optional, tag = "2")]
    pub(super) f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub(super) i: Option<i64>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub(super) ints: Vec<i64>,
    #[prost(int32, tag = "20")]
    pub(super) kind: i32,
}

impl Attribute {
    pub(super) fn float(name: &str, f: f32) -> Self {
        Self { name: name.to_owned(), f: Some(f), kind: 1, ..Self::default() }
    }

    pub(super) fn int(name: &str, i: i64) -> Self {
        Self { name: name.to_owned(), i: Some(i), kind: 2, ..Self::default() }
    }

    pub(super) fn ints(name: &str, ints: &[i64]) -> Self {
        Self { name: name.to_owned(), ints: ints.to_vec(), kind: 7, ..Self::default() }
    }
}

/// A constant; its numbers are little-endian bytes.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Tensor {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub(super) dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(super) data_type: i32,
    #[prost(string, tag = "8")]
    pub(super) name: String,
    #[prost(bytes = "vec", tag = "9")]
    pub(super) raw_data: Vec<u8>,
}

/// An input or output with its type.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) kind: Option<Kind>,
    #[prost(string, tag = "3")]
    pub(super) doc_string: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Kind {
    #[prost(message, optional, tag = "1")]
    pub(super) tensor: Option<TensorKind>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorKind {
    #[prost(int32, tag = "1")]
    pub(super) elem_type: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) shape: Option<TensorShape>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorShape {
    #[prost(message, repeated, tag = "1")]
    pub(super) dim: Vec<Dimension>,
}

/// A length, or the name of one that is only known when the graph is run.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub(super) length: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
}
