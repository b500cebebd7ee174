//! The operations, each with its forward and backward pass.
//!
//! Every function works on a block of rows. Backward functions add to the gradient they are given,
//! so that a node read by several others collects from all of them; those that can also overwrite
//! it say so.

pub(crate) mod add;
pub(crate) mod average_pool;
pub(crate) mod batch_norm;
pub(crate) mod channels;
pub(crate) mod conv2d;
pub(crate) mod linear;
pub(crate) mod loss;
pub(crate) mod max_pool;
pub(crate) mod narrow;
pub(crate) mod relu;
pub(crate) mod tanh;
pub(crate) mod tile;
pub(crate) mod tiny;
pub(crate) mod vary;
