//! A tokenizer small enough to know by heart: ids 0-255 are the bytes, then two merges, then added
//! tokens.

use serde_json::{Value, json};

pub const HE: u32 = 256;
pub const END: u32 = 258;
pub const THINK: u32 = 259;

pub fn byte_level() -> Value {
    let printable = |b: u32| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut vocab = serde_json::Map::new();
    let mut next = 256;
    for byte in 0..256 {
        let code = if printable(byte) { byte } else { next };
        next += u32::from(!printable(byte));
        vocab.insert(char::from_u32(code).unwrap().to_string(), json!(byte));
    }
    vocab.insert("he".into(), json!(HE));
    vocab.insert("hel".into(), json!(HE + 1));
    let added = |id: u32, content: &str, special: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": special})
    };
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false,
                            "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [added(END, "<|end|>", true), added(THINK, "<think>", false)],
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [END], "tokens": ["<|end|>"]}}
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab,
            "merges": [["h", "e"], ["he", "l"]]
        }
    })
}
