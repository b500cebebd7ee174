//! The tables and two figures of the paper, made again.

mod figures;
mod fixed;
pub mod images;
mod table4;
mod table_file;

pub use figures::{Figure, Figures, draw_figure, figure_channels, figure_runs, reproduce_figure};
pub use table4::{
    Cost, Example, Failure, Outcome, PathQuality, Plan, Printed, Row, Summary, Table4, collect,
    printed, table4,
};
