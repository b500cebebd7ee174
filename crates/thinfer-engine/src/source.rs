/// The bytes of two texts, one after the other; `N` must be the sum of their lengths. Called by
/// [`joined`](crate::joined), which knows it.
pub const fn join_bytes<const N: usize>(first: &str, second: &str) -> [u8; N] {
    let (first, second) = (first.as_bytes(), second.as_bytes());
    let mut out = [0; N];
    let mut at = 0;
    while at < N {
        out[at] = if at < first.len() { first[at] } else { second[at - first.len()] };
        at += 1;
    }
    out
}

/// Two constant texts as one, at compile time. Kernels are put together with it: NVRTC knows no
/// include path, and `concat!` takes literals only, which a text of another crate is not.
#[macro_export]
macro_rules! joined {
    ($first:expr, $second:expr) => {{
        const FIRST: &str = $first;
        const SECOND: &str = $second;
        const BYTES: [u8; FIRST.len() + SECOND.len()] = $crate::join_bytes(FIRST, SECOND);
        match ::core::str::from_utf8(&BYTES) {
            Ok(text) => text,
            Err(_) => panic!("two valid texts make a valid text"),
        }
    }};
}

#[cfg(test)]
mod tests {
    #[test]
    fn texts_are_joined_at_compile_time() {
        const TEXT: &str = joined!("größer ", joined!("als", " µ"));
        assert_eq!(TEXT, "größer als µ");
        assert_eq!(joined!("", ""), "");
    }
}
