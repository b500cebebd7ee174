//! Which Parquet columns can be used, and as what.

use std::path::Path;

use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::Type;

use crate::error::{Error, Result};
use crate::table::check_names;

/// How a column is stored, among the ways that can be used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stored {
    Number,
    Unsigned,
    Truth,
    Text,
    /// A whole number to be divided by this power of ten.
    Decimal(i32),
}

/// How every column is stored; refuses nested columns, other types and other compressions.
pub(super) fn kinds(path: &Path, meta: &ParquetMetaData) -> Result<Vec<Stored>> {
    let schema = meta.file_metadata().schema_descr();
    let fields = schema.root_schema().get_fields();
    check_names(path, &fields.iter().map(|field| field.name().to_owned()).collect::<Vec<_>>())?;
    for chunk in meta.row_groups().iter().flat_map(RowGroupMetaData::columns) {
        check_compression(path, chunk.compression())?;
    }
    fields.iter().map(|field| stored(path, field)).collect()
}

fn check_compression(path: &Path, compression: Compression) -> Result<()> {
    match compression {
        Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_) => Ok(()),
        other => {
            let problem = format!(
                "the compression {other} is not supported; write the table with Snappy or \
                 Zstandard compression, or with none"
            );
            Err(Error::table(path, problem))
        }
    }
}

fn stored(path: &Path, field: &Type) -> Result<Stored> {
    let name = field.name();
    let info = field.get_basic_info();
    if field.is_group() || info.repetition() == Repetition::REPEATED {
        let problem = format!(
            "column `{name}` is nested; write its parts as columns of their own, or drop it"
        );
        return Err(Error::table(path, problem));
    }
    let physical = field.get_physical_type();
    let whole = matches!(physical, Physical::INT32 | Physical::INT64);
    let bytes = physical == Physical::BYTE_ARRAY;
    let kind = match (info.logical_type_ref(), info.converted_type()) {
        (Some(LogicalType::Decimal(_)), _) | (None, ConvertedType::DECIMAL)
            if whole || bytes || physical == Physical::FIXED_LEN_BYTE_ARRAY =>
        {
            Some(Stored::Decimal(field.get_scale()))
        }
        (Some(LogicalType::Integer(int)), _) if whole && !int.is_signed => Some(Stored::Unsigned),
        (
            None,
            ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64,
        ) if whole => Some(Stored::Unsigned),
        (Some(LogicalType::Integer(_)), _)
        | (
            None,
            ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::INT_64,
        ) if whole => Some(Stored::Number),
        (Some(LogicalType::String | LogicalType::Enum), _)
        | (None, ConvertedType::UTF8 | ConvertedType::ENUM)
            if bytes =>
        {
            Some(Stored::Text)
        }
        // `Unknown` is a column of nulls only. Old writers leave text without a mark.
        (None | Some(LogicalType::Unknown), ConvertedType::NONE) => match physical {
            Physical::INT32 | Physical::INT64 | Physical::FLOAT | Physical::DOUBLE => {
                Some(Stored::Number)
            }
            Physical::BOOLEAN => Some(Stored::Truth),
            Physical::BYTE_ARRAY => Some(Stored::Text),
            Physical::INT96 | Physical::FIXED_LEN_BYTE_ARRAY => None,
        },
        _ => None,
    };
    kind.ok_or_else(|| {
        let problem = format!(
            "column `{name}` has the type {}, which cannot be used; convert it to numbers or \
             text, or drop it",
            type_name(field)
        );
        Error::table(path, problem)
    })
}

fn type_name(field: &Type) -> String {
    let info = field.get_basic_info();
    match (info.logical_type_ref(), info.converted_type()) {
        (Some(logical), _) => {
            let all = format!("{logical:?}");
            all.split('(').next().unwrap_or_default().to_uppercase()
        }
        (None, ConvertedType::NONE) => field.get_physical_type().to_string(),
        (None, converted) => converted.to_string(),
    }
}

/// Bytes so many rows of these columns take; nothing where that overflows.
pub(super) fn needed(rows: u64, kinds: &[Stored]) -> Option<u64> {
    // A number, or a `String` and a small allocation behind it.
    let width = |kind: &Stored| if *kind == Stored::Text { 40 } else { 8 };
    rows.checked_mul(kinds.iter().map(width).sum())
}

#[cfg(test)]
mod tests {
    use parquet::schema::parser::parse_message_type;

    use super::*;

    fn message(field: &str) -> String {
        let schema = parse_message_type(&format!("message m {{ {field} }}")).unwrap();
        stored(Path::new("t.parquet"), &schema.get_fields()[0]).unwrap_err().to_string()
    }

    #[test]
    fn types_that_cannot_be_used_are_refused_with_type_and_column() {
        for (field, name) in [
            ("required int32 day (date);", "DATE"),
            ("required int64 day (timestamp(micros, true));", "TIMESTAMP"),
            ("required int64 day (timestamp_millis);", "TIMESTAMP"),
            ("required int32 day (time(millis, true));", "TIME"),
            ("required fixed_len_byte_array(2) day (float16);", "FLOAT16"),
            ("required fixed_len_byte_array(2) day;", "FIXED_LEN_BYTE_ARRAY"),
        ] {
            let refused = message(field);
            let expected = format!("column `day` has the type {name}");
            assert!(refused.contains(&expected), "{refused}");
            assert!(refused.ends_with("convert it to numbers or text, or drop it"), "{refused}");
        }
    }

    #[test]
    fn nested_columns_are_refused_with_the_name() {
        let refused = message("required group place { required int32 lat; }");
        assert!(refused.contains("column `place` is nested; write its parts"), "{refused}");
    }

    #[test]
    fn other_compressions_are_refused_with_those_that_can_be_read() {
        let path = Path::new("t.parquet");
        check_compression(path, Compression::SNAPPY).unwrap();
        let refused = check_compression(path, Compression::LZ4).unwrap_err().to_string();
        assert!(refused.contains("LZ4 is not supported; write the table with Snappy"), "{refused}");
    }

    #[test]
    fn the_estimate_overflows_to_nothing() {
        assert_eq!(needed(100, &[Stored::Number, Stored::Text]), Some(4800));
        assert_eq!(needed(u64::MAX / 2, &[Stored::Number]), None);
    }
}
