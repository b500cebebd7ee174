//! The posterior of a run as one string of bytes, for `pickle`.
//!
//! `THINFERP` · CRC-32 of what follows (u32) · length of the header (u64), both little-endian ·
//! header · snapshots. The header is JSON: `info` as in `run.json`, `seconds`, and the `lengths` of
//! the snapshots, each of which is a safetensors file as in a run folder.

use std::path::Path;

use serde::{Deserialize, Serialize};
use thinfer::posterior::{Posterior, snapshot_from_bytes, snapshot_to_bytes};
use thinfer::run::RunInfo;
use thinfer::{Error, Result};

const MAGIC: &[u8; 8] = b"THINFERP";
const FIXED: usize = 8 + 4 + 8;

#[derive(Serialize, Deserialize)]
struct Header {
    info: RunInfo,
    seconds: f64,
    lengths: Vec<usize>,
}

/// The bytes of a posterior.
pub(crate) fn to_bytes(info: &RunInfo, posterior: &Posterior, seconds: f64) -> Result<Vec<u8>> {
    let members = &posterior.members;
    let snapshots = members.iter().map(|member| snapshot_to_bytes(&info.network, member));
    let snapshots = snapshots.collect::<Result<Vec<Vec<u8>>>>()?;
    let lengths = snapshots.iter().map(Vec::len).collect();
    let header = serde_json::to_vec(&Header { info: info.clone(), seconds, lengths })
        .map_err(|e| Error::Data(format!("the run could not be written: {e}; report this")))?;
    let mut rest = (header.len() as u64).to_le_bytes().to_vec();
    rest.extend(header);
    snapshots.iter().for_each(|snapshot| rest.extend(snapshot));
    let mut bytes = MAGIC.to_vec();
    bytes.extend(crc32fast::hash(&rest).to_le_bytes());
    bytes.extend(rest);
    Ok(bytes)
}

/// The posterior of such bytes, every one of which is checked.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<(RunInfo, Posterior, f64)> {
    let damaged = |what: &str| {
        Error::Data(format!("the bytes are no run of thinfer ({what}); write them again"))
    };
    let fixed = bytes.get(..FIXED).ok_or_else(|| damaged("they are too short"))?;
    if &fixed[..8] != MAGIC {
        return Err(damaged("they do not start like one"));
    }
    let checksum = u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]);
    if crc32fast::hash(&bytes[12..]) != checksum {
        return Err(damaged("their checksum is wrong"));
    }
    let mut length = [0; 8];
    length.copy_from_slice(&fixed[12..]);
    let cut = |rest: &[u8], at: usize| -> Option<(Vec<u8>, Vec<u8>)> {
        rest.split_at_checked(at).map(|(first, rest)| (first.to_vec(), rest.to_vec()))
    };
    let length = usize::try_from(u64::from_le_bytes(length)).ok();
    let (header, mut rest) = length
        .and_then(|length| cut(&bytes[FIXED..], length))
        .ok_or_else(|| damaged("the header is cut short"))?;
    let Header { info, seconds, lengths } = serde_json::from_slice(&header).map_err(|e| {
        damaged(&format!("their header cannot be read, perhaps by this version alone: {e}"))
    })?;
    let mut members = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (snapshot, after) = cut(&rest, length).ok_or_else(|| damaged("they are cut short"))?;
        members.push(snapshot_from_bytes(&info.network, Path::new("bytes of a run"), &snapshot)?);
        rest = after;
    }
    let posterior = Posterior { network: info.network.clone(), members };
    Ok((info, posterior, seconds))
}
