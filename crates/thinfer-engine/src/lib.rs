//! The engine under thinfer: networks as data, parameters in one flat arena, and plans that run
//! them. It knows nothing of Bayes.
//!
//! ```
//! use thinfer_engine::{Arena, Dataset, Loss, NetworkBuilder, Plan};
//!
//! let mut builder = NetworkBuilder::new(2);
//! let hidden = builder.linear("fc1", builder.input(), 3)?;
//! let hidden = builder.tanh(hidden)?;
//! let output = builder.linear("fc2", hidden, 1)?;
//! let network = builder.finish(output, Loss::gaussian(1.0))?;
//!
//! let data = Dataset::new(2, 1, vec![0.5, -1.0, 2.0, 0.25], vec![1.0, -1.0])?;
//! let mut arena = Arena::new(&network, 0);
//! let mut plan = Plan::new(&network, 2)?;
//! let loss = plan.gradient(&mut arena, &data, &[0, 1])?;
//! assert_eq!(loss, 0.5); // all weights are still zero, so the loss is mean(y²)/2
//! # Ok::<(), thinfer_engine::EngineError>(())
//! ```
//!
//! The parts, in the order in which data flows:
//! - [`Network`]: nodes in topological order, checked when it is built, serialisable.
//! - [`ParamTable`] and [`Arena`]: every parameter has a name, a shape, a role and an offset into
//!   flat buffers; a method's update is one [`Pass`] over them.
//! - [`Plan`]: a network compiled for a batch size; it allocates nothing per step and gives the
//!   same bits for any number of threads.
//! - [`noise`]: Philox4x32-10 and Box-Muller, a pure function of (seed, chain, step, index).

mod arena;
pub mod augment;
pub mod cuda;
mod dataset;
mod device_memory;
pub mod elementary;
mod error;
mod mixture;
mod network;
pub mod noise;
mod ops;
mod param;
mod plan;
mod real;
mod shape;
mod source;
mod vectorize;

pub use arena::{Arena, Call, Chunk, Clip, Kernel, Pass};
pub use dataset::Dataset;
pub use error::EngineError;
pub use mixture::{Draw, Law, Mixture};
pub use network::{Curve, Family, List, Network, NetworkBuilder, Node, NodeId, Op};
pub use ops::loss::{Loss, NoiseUnit, Scale};
pub use ops::{Onnx, Pool};
pub use param::{Param, ParamTable, Role};
pub use plan::{ExactPlan, Passes, Plan};
pub use shape::{Shape, Window};
pub use source::join_bytes;
pub use vectorize::{vector_unit, vectorize};
