//! The CRC of bytes that lie one behind another, from the CRCs of both. Pure.

use crate::ChecksumAlgorithm;

/// Arithmetic of polynomials over GF(2), modulo a CRC's polynomial. Each of these CRCs is a remainder of such
/// a division, with the coefficient of x^0 in its highest bit.
///
/// `crc_fast::checksum_combine` squares a matrix of 64 by 64 bits for each bit of a length, which takes
/// longer than the CRC of 128 KiB itself. A product of two polynomials takes 64 steps.
#[derive(Clone, Copy, Debug)]
struct Field {
    /// The polynomial 1.
    one: u64,
    /// The CRC's polynomial without its highest term.
    modulus: u64,
}

impl Field {
    fn of(algorithm: ChecksumAlgorithm) -> Self {
        match algorithm {
            ChecksumAlgorithm::Crc64Nvme => Self { one: 1 << 63, modulus: 0x9a6c_9329_ac4b_c9b5 },
            ChecksumAlgorithm::Crc32c => Self { one: 1 << 31, modulus: 0x82f6_3b78 },
            ChecksumAlgorithm::Crc32 => Self { one: 1 << 31, modulus: 0xedb8_8320 },
        }
    }

    fn product(self, first: u64, mut second: u64) -> u64 {
        let (mut product, mut term) = (0, self.one);
        while term != 0 {
            if first & term != 0 {
                product ^= second;
            }
            second = (second >> 1) ^ if second & 1 == 0 { 0 } else { self.modulus };
            term >>= 1;
        }
        product
    }

    /// x^(8 · `bytes`): the factor of a CRC that `bytes` more bytes follow.
    fn shift(self, mut bytes: u64) -> u64 {
        let (mut shift, mut square) = (self.one, self.one >> 8);
        while bytes > 0 {
            if bytes & 1 == 1 {
                shift = self.product(shift, square);
            }
            square = self.product(square, square);
            bytes >>= 1;
        }
        shift
    }
}

/// Joins the CRC of any bytes with that of the bytes behind them, which have a certain length.
#[derive(Clone, Copy, Debug)]
pub struct FollowedBy {
    field: Field,
    shift: u64,
}

impl FollowedBy {
    /// For `len` bytes behind.
    pub fn new(algorithm: ChecksumAlgorithm, len: u64) -> Self {
        let field = Field::of(algorithm);
        Self { field, shift: field.shift(len) }
    }

    /// The CRC of the bytes with the CRC `first`, followed by those with the CRC `next`. No bytes have the CRC 0.
    pub fn join(&self, first: u64, next: u64) -> u64 {
        self.field.product(first, self.shift) ^ next
    }
}
