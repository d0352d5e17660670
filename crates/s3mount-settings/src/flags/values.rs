//! Reads values of flags that have no type of their own.

use std::net::SocketAddr;

use hyper::Uri;

use crate::flags::size::Size;

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse();
    address.map_err(|_| "not an address and a port; write it like 127.0.0.1:9105 or [::1]:9105".to_owned())
}

pub(super) fn collector(text: &str) -> Result<Uri, String> {
    let uri = text.parse::<Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    uri.ok_or_else(|| "not a URL with http or https; write it like http://localhost:4318".to_owned())
}

/// The least rate in bytes a second. At a lower one, a part takes longer than a read waits.
const LEAST_RATE: Size = Size(1 << 20);

pub(super) fn byte_rate(text: &str) -> Result<Size, String> {
    let rate: Size = text.parse()?;
    if rate < LEAST_RATE { Err(format!("less than {LEAST_RATE} a second")) } else { Ok(rate) }
}

pub(super) fn mode(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text.trim_start_matches("0o"), 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "not permission bits; write three octal digits, such as 755".to_owned())
}
