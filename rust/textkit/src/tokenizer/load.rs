//! Reading a tokenizer.json: the crate's parser, with errors that name what is at fault, and with
//! what must not reach an engine for prompts (truncation, padding) taken out.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokenizers::{
    DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    Tokenizer,
};

use crate::failure::{Failure, Kind, Outcome};

/// Ids index tables, so a stray huge id in a hostile file must not size them.
const ID_MAX: u32 = 1 << 24;

pub fn load(json: &[u8]) -> Outcome<Tokenizer> {
    let mut tokenizer = Tokenizer::from_bytes(json).map_err(|e| explain(json, &e.to_string()))?;
    tokenizer.with_truncation(None).map_err(Failure::internal)?.with_padding(None);
    check_ids(&tokenizer, json)?;
    Ok(tokenizer)
}

#[derive(Deserialize)]
struct Declared {
    #[serde(default)]
    added_tokens: Vec<DeclaredToken>,
}

#[derive(Deserialize)]
struct DeclaredToken {
    id: u32,
    content: String,
}

/// The crate numbers added tokens itself and only warns when a file says otherwise; weights follow
/// the file, so a difference would be silent nonsense.
fn check_ids(tokenizer: &Tokenizer, json: &[u8]) -> Outcome<()> {
    let vocab = tokenizer.get_vocab(true);
    if let Some((token, id)) = vocab.iter().find(|(_, id)| **id >= ID_MAX) {
        let message = format!("token {token:?} has id {id}, over the limit of {ID_MAX}");
        return Err(Failure::new(Kind::Corrupt, message));
    }
    let declared: Declared = serde_json::from_slice(json)
        .map_err(|e| Failure::new(Kind::Corrupt, format!("added_tokens: {e}")))?;
    for token in declared.added_tokens {
        let loaded = tokenizer.token_to_id(&token.content);
        // An empty spelling can never match and is dropped by the crate.
        if loaded != Some(token.id) && !token.content.is_empty() {
            let message = format!(
                "added token {:?} has id {} in the file but loads as {loaded:?}",
                token.content, token.id
            );
            return Err(Failure::new(Kind::Corrupt, message));
        }
    }
    Ok(())
}

/// The crate reports a part it does not know as "no variant matched"; try the parts one by one to
/// say which. Slow, but only on failure.
fn explain(json: &[u8], error: &str) -> Failure {
    let Ok(file) = serde_json::from_slice::<serde_json::Value>(json) else {
        return Failure::new(Kind::Corrupt, error);
    };
    let fault = probe::<ModelWrapper>(&file, "model")
        .or_else(|| probe::<Option<NormalizerWrapper>>(&file, "normalizer"))
        .or_else(|| probe::<Option<PreTokenizerWrapper>>(&file, "pre_tokenizer"))
        .or_else(|| probe::<Option<PostProcessorWrapper>>(&file, "post_processor"))
        .or_else(|| probe::<Option<DecoderWrapper>>(&file, "decoder"));
    fault.unwrap_or_else(|| Failure::new(Kind::Corrupt, error))
}

fn probe<T: DeserializeOwned>(file: &serde_json::Value, part: &str) -> Option<Failure> {
    let value = &file[part];
    let error = serde_json::from_value::<T>(value.clone()).err()?;
    Some(match value["type"].as_str() {
        Some(name) if error.to_string().contains("variant") => Failure::new(
            Kind::Unsupported,
            format!("{part} of type {name:?} is not supported: {error}"),
        ),
        _ => Failure::new(Kind::Corrupt, format!("{part}: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::fixture;
    use serde_json::json;

    fn failure(edit: impl FnOnce(&mut serde_json::Value)) -> Failure {
        let mut file = fixture::byte_level();
        edit(&mut file);
        load(file.to_string().as_bytes()).expect_err("must fail")
    }

    #[test]
    fn names_the_unsupported_part() {
        let failure = failure(|file| file["pre_tokenizer"] = json!({"type": "Psychic"}));
        assert_eq!(failure.kind, Kind::Unsupported);
        assert!(failure.message.contains("pre_tokenizer of type \"Psychic\""));
    }

    #[test]
    fn refuses_what_contradicts_itself() {
        let moved = failure(|file| file["added_tokens"][0]["id"] = json!(12345));
        assert_eq!(moved.kind, Kind::Corrupt);
        let huge = failure(|file| file["model"]["vocab"]["zz"] = json!(4_000_000_000u32));
        assert!(huge.message.contains("over the limit"));
        let merge = failure(|file| file["model"]["merges"][0] = json!(["q!", "z!"]));
        assert_eq!(merge.kind, Kind::Corrupt);
        assert_eq!(load(b"{]").err().unwrap().kind, Kind::Corrupt);
    }

    #[test]
    fn drops_truncation() {
        let mut file = fixture::byte_level();
        file["truncation"] = json!({"direction": "Right", "max_length": 1,
            "strategy": "LongestFirst", "stride": 0});
        let tokenizer = load(file.to_string().as_bytes()).unwrap();
        let ids = tokenizer.encode("a b c", false).unwrap();
        assert_eq!(ids.get_ids().len(), 5);
    }
}
