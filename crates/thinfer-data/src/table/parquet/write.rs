//! Tables written as Parquet.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::table::OutColumn;

/// Rows in one row group.
const ROW_GROUP: usize = 1 << 20;

/// Writes columns of equal length.
pub(in crate::table) fn write<W: Write + Send>(
    file: W,
    columns: &[(String, OutColumn)],
) -> io::Result<W> {
    parquet_file(file, columns).map_err(|error| match error {
        // A full disk comes wrapped, and keeps its kind when it is taken out.
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(inner) => *inner,
            Err(inner) => io::Error::other(inner),
        },
        other => io::Error::other(other),
    })
}

fn parquet_file<W: Write + Send>(
    file: W,
    columns: &[(String, OutColumn)],
) -> std::result::Result<W, ParquetError> {
    let fields = columns.iter().map(|(name, column)| {
        let field = match column {
            OutColumn::Number(_) => Type::primitive_type_builder(name, Physical::DOUBLE),
            OutColumn::Text(_) => Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String)),
        };
        field.with_repetition(Repetition::REQUIRED).build().map(Arc::new)
    });
    let fields = fields.collect::<std::result::Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let rows = columns.first().map_or(0, |(_, column)| column.len());
    for first in (0..rows).step_by(ROW_GROUP) {
        let range = first..rows.min(first + ROW_GROUP);
        let mut group = writer.next_row_group()?;
        for (name, column) in columns {
            let Some(mut chunk) = group.next_column()? else { break };
            match (chunk.untyped(), column) {
                (ColumnWriter::DoubleColumnWriter(chunk), OutColumn::Number(values)) => {
                    chunk.write_batch(&values[range.clone()], None, None)?;
                }
                (ColumnWriter::ByteArrayColumnWriter(chunk), OutColumn::Text(values)) => {
                    let values = values[range.clone()].iter().map(|v| ByteArray::from(v.as_str()));
                    chunk.write_batch(&values.collect::<Vec<_>>(), None, None)?;
                }
                _ => return Err(ParquetError::General(format!("the type of `{name}` changed"))),
            }
            chunk.close()?;
        }
        group.close()?;
    }
    writer.into_inner()
}
