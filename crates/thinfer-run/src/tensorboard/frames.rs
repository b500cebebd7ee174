//! The frames of an event file (TFRecord): length, checksum of the length, data, checksum of the
//! data; all numbers little-endian.

/// Bytes around the data.
const BEFORE: usize = 12;
const AFTER: usize = 4;

/// The reflected polynomial of CRC-32C (Castagnoli).
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What each byte does to the checksum.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ POLYNOMIAL };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

fn crc32c(data: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| sum >> 8 ^ TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize];
    !data.iter().fold(!0, step)
}

/// The checksum as the files have it: a sum over data that holds sums would be weak.
fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The data in a frame.
pub(super) fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut frame = length.to_vec();
    frame.extend(masked(&length).to_le_bytes());
    frame.extend(data);
    frame.extend(masked(data).to_le_bytes());
    frame
}

/// The whole frames at the beginning of some bytes: where each ends, and its data.
pub(super) fn frames(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &bytes[at..];
        let (length, sum) = (rest.get(..8)?, rest.get(8..BEFORE)?);
        if masked(length).to_le_bytes() != *sum {
            return None;
        }
        let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
        let end = BEFORE.checked_add(length)?;
        let (data, sum) = (rest.get(BEFORE..end)?, rest.get(end..end.checked_add(AFTER)?)?);
        if masked(data).to_le_bytes() != *sum {
            return None;
        }
        at += end + AFTER;
        Some((at, data))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_known_one() {
        // RFC 3720, appendix B.4, and the value for `123456789` that catalogues of checksums list.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn frames_are_read_back_up_to_the_first_damage() {
        let parts: [&[u8]; 3] = [b"one", b"", b"three"];
        let whole: Vec<u8> = parts.iter().flat_map(|part| frame(part)).collect();
        let read = |bytes: &[u8]| frames(bytes).map(|(_, data)| data.to_vec()).collect::<Vec<_>>();
        assert_eq!(read(&whole), parts);
        assert_eq!(frames(&whole).last().unwrap().0, whole.len());
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).len() < 3, "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            let found = read(&bytes);
            assert!(
                found.len() < 3
                    && parts.starts_with(&found[..].iter().map(|v| &v[..]).collect::<Vec<_>>()),
                "byte {at}"
            );
        }
    }
}
