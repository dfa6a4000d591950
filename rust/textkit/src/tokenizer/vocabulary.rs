//! Raw bytes of every token, so that decoding a stream costs one table look-up a token.

use std::collections::HashMap;

use tokenizers::{DecoderWrapper, Tokenizer};

/// Byte table of one tokenizer. Tokens lie end to end in `bytes`.
pub struct Vocabulary {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    special: Vec<bool>,
    bytewise: bool,
}

impl Vocabulary {
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let mut decoder = Decoder::default();
        if let Some(wrapper) = tokenizer.get_decoder() {
            decoder.read(wrapper);
        }
        let added = tokenizer.get_added_tokens_decoder();
        let last = tokenizer.get_vocab(true).into_values().max();
        let size = last.map_or(0, |id| id + 1);
        let mut table = Vocabulary {
            bytes: Vec::new(),
            ends: Vec::with_capacity(size as usize),
            special: Vec::with_capacity(size as usize),
            bytewise: decoder.is_bytewise(),
        };
        let aliases = byte_aliases();
        for id in 0..size {
            let spelling = tokenizer.id_to_token(id).unwrap_or_default();
            table.bytes.extend(decoder.decode(&spelling, &aliases));
            table.ends.push(table.bytes.len());
            let special = added.get(&id).is_some_and(|token| token.special);
            table.special.push(special);
        }
        table
    }

    /// One more than the highest id.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when the bytes of tokens, joined, are the decoded text. Otherwise the decoder also
    /// looks at a token's neighbours (strips a leading space, joins word pieces).
    pub fn is_bytewise(&self) -> bool {
        self.bytewise
    }

    /// Bytes of `id`, and whether it is special; nothing when out of range or unassigned.
    pub fn token(&self, id: u32) -> (&[u8], bool) {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else {
            return (&[], false);
        };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        (&self.bytes[start..end], self.special[id])
    }
}

/// What the decoder does to a single token.
#[derive(Default)]
struct Decoder {
    byte_level: bool,
    byte_fallback: bool,
    spaces: Vec<String>,
    contextual: bool,
}

impl Decoder {
    fn read(&mut self, wrapper: &DecoderWrapper) {
        match wrapper {
            DecoderWrapper::ByteLevel(_) => self.byte_level = true,
            DecoderWrapper::ByteFallback(_) => self.byte_fallback = true,
            DecoderWrapper::Fuse(_) => {}
            DecoderWrapper::Sequence(steps) => {
                steps.get_decoders().iter().for_each(|step| self.read(step));
            }
            // The pattern is private to the crate, but not in its JSON form.
            DecoderWrapper::Replace(replace) if replace.content == " " => {
                match serde_json::to_value(replace).map(|mut v| v["pattern"]["String"].take()) {
                    Ok(serde_json::Value::String(pattern)) => self.spaces.push(pattern),
                    _ => self.contextual = true,
                }
            }
            _ => self.contextual = true,
        }
    }

    fn is_bytewise(&self) -> bool {
        (self.byte_level || self.byte_fallback) && !self.contextual
    }

    fn decode(&self, spelling: &str, aliases: &HashMap<char, u8>) -> Vec<u8> {
        if self.byte_level {
            // As the crate's decoder: a token with a character outside the alphabet stands for
            // itself.
            let bytes: Option<Vec<u8>> =
                spelling.chars().map(|c| aliases.get(&c).copied()).collect();
            return bytes.unwrap_or_else(|| spelling.as_bytes().to_vec());
        }
        if self.byte_fallback
            && let Some(byte) = fallback_byte(spelling)
        {
            return vec![byte];
        }
        let mut text = spelling.to_string();
        for pattern in &self.spaces {
            text = text.replace(pattern, " ");
        }
        text.into_bytes()
    }
}

/// The byte that `<0x0A>` stands for.
fn fallback_byte(spelling: &str) -> Option<u8> {
    let digits = spelling.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the rest for code points from
/// 256 on in byte order.
fn byte_aliases() -> HashMap<char, u8> {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let own = (0..=255u8).filter(|b| printable(*b)).map(|b| (char::from(b), b));
    let others = (0..=255u8).filter(|b| !printable(*b));
    let moved = ('\u{100}'..).zip(others);
    own.chain(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{fixture, load::load};
    use serde_json::json;

    fn table(file: &serde_json::Value) -> Vocabulary {
        Vocabulary::new(&load(file.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn byte_level_tokens_are_bytes() {
        let table = table(&fixture::byte_level());
        assert!(table.is_bytewise());
        for byte in 0..=255u8 {
            assert_eq!(table.token(u32::from(byte)), (&[byte][..], false));
        }
        assert_eq!(table.token(fixture::END), (&b"<|end|>"[..], true));
        assert_eq!(table.token(fixture::THINK), (&b"<think>"[..], false));
        assert_eq!(table.token(u32::MAX), (&b""[..], false));
    }

    #[test]
    fn byte_fallback_and_contextual_decoders() {
        let mut file = fixture::byte_level();
        let space = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
        file["decoder"] = json!({"type": "Sequence", "decoders":
            [space, {"type": "ByteFallback"}, {"type": "Fuse"}]});
        for (id, token) in [(258, "<|end|>"), (259, "<think>"), (300, "<0x0A>"), (301, "▁x")] {
            file["model"]["vocab"][token] = json!(id);
        }
        let table_a = table(&file);
        assert!(table_a.is_bytewise());
        assert_eq!(table_a.token(300).0, b"\n");
        assert_eq!(table_a.token(301).0, b" x");

        let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
        file["decoder"]["decoders"].as_array_mut().unwrap().push(strip);
        assert!(!table(&file).is_bytewise());
    }
}
