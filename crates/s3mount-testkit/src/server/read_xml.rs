//! Reads the XML bodies of requests.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use crate::sums::Sum;
use crate::uploads::{Named, Refused, refused};

/// The most keys of one request to delete.
const MOST_KEYS: usize = 1000;

fn malformed() -> Refused {
    refused(400, "MalformedXML", "The XML you provided was not well-formed or did not validate")
}

/// Calls `visit` at the end of each element, with the names of its ancestors and itself, and its own text.
fn walk(xml: &[u8], mut visit: impl FnMut(&[&str], &str)) -> Result<(), Refused> {
    let xml = std::str::from_utf8(xml).map_err(|_| malformed())?;
    let mut reader = Reader::from_str(xml);
    let (mut path, mut texts): (Vec<String>, Vec<String>) = (Vec::new(), vec![String::new()]);
    let add = |texts: &mut Vec<String>, text: &str| {
        texts.last_mut().map(|last| last.push_str(text)).unwrap_or_default();
    };
    loop {
        match reader.read_event().map_err(|_| malformed())? {
            Event::Start(element) => {
                path.push(element.local_name().as_ref().to_owned());
                texts.push(String::new());
            }
            Event::End(_) => {
                let names: Vec<&str> = path.iter().map(String::as_str).collect();
                visit(&names, texts.pop().unwrap_or_default().trim());
                path.pop();
            }
            Event::Text(text) => add(&mut texts, &text),
            Event::CData(text) => add(&mut texts, &text),
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().map_err(|_| malformed())?;
                match (character, resolve_predefined_entity(&reference)) {
                    (Some(character), _) => add(&mut texts, character.encode_utf8(&mut [0; 4])),
                    (None, Some(text)) => add(&mut texts, text),
                    (None, None) => return Err(malformed()),
                }
            }
            Event::Eof if path.is_empty() => return Ok(()),
            Event::Eof => return Err(malformed()),
            _ => {}
        }
    }
}

/// The parts that a CompleteMultipartUpload names.
pub(crate) fn parts(xml: &[u8]) -> Result<Vec<Named>, Refused> {
    let mut parts = Vec::new();
    let (mut number, mut tag, mut value) = (None, None, None);
    walk(xml, |path, text| match path {
        ["CompleteMultipartUpload", "Part", "PartNumber"] => number = text.parse().ok(),
        ["CompleteMultipartUpload", "Part", "ETag"] => tag = Some(text.trim_matches('"').to_owned()),
        ["CompleteMultipartUpload", "Part", name] => {
            let is_sum = name.strip_prefix("Checksum").and_then(Sum::named).is_some();
            value = Some(text.to_owned()).filter(|_| is_sum).or(value.take());
        }
        ["CompleteMultipartUpload", "Part"] => parts.push((number.take(), tag.take(), value.take())),
        _ => {}
    })?;
    let named = |(number, tag, value)| Some(Named { number: number?, tag: tag?, value });
    parts.into_iter().map(named).collect::<Option<_>>().ok_or_else(malformed)
}

/// What a DeleteObjects asks for.
#[derive(Debug, Default)]
pub(crate) struct Deletions {
    /// The keys, and the versions that they have to be.
    pub(crate) keys: Vec<(String, Option<String>)>,
    /// The answer names only the failures.
    pub(crate) is_quiet: bool,
}

/// Parses a DeleteObjects.
pub(crate) fn deletions(xml: &[u8]) -> Result<Deletions, Refused> {
    let (mut wanted, mut key, mut etag) = (Deletions::default(), None, None);
    walk(xml, |path, text| match path {
        ["Delete", "Quiet"] => wanted.is_quiet = text == "true",
        ["Delete", "Object", "Key"] => key = Some(text.to_owned()),
        ["Delete", "Object", "ETag"] => etag = Some(text.to_owned()),
        ["Delete", "Object"] => wanted.keys.extend(key.take().map(|key| (key, etag.take()))),
        _ => {}
    })?;
    let is_right = (1..=MOST_KEYS).contains(&wanted.keys.len());
    is_right.then_some(wanted).ok_or_else(malformed)
}
