//! Encoding and decoding. An engine is immutable and may be used by any number of threads at once.
//!
//! Three ways to encode differ in what may become an added token:
//! - `encode`: whatever spells one, as Hugging Face does; for text that a template wrote;
//! - `encode_plain`: nothing; for text from people;
//! - `encode_marked`: whatever spells one with no mark inside; for a template's text with people's
//!   text in it.

use tokenizers::tokenizer::{OffsetReferential, Result as CrateResult};
use tokenizers::{
    Model, ModelWrapper, NormalizedString, Normalizer, OffsetType, PreTokenizedString,
    PreTokenizer, Token, Tokenizer,
};

use super::load::load;
use super::vocabulary::Vocabulary;
use crate::failure::{Failure, Kind, Outcome};

/// Rounds of breaking up spellings that only the normalizer brings about. Each breaks all it finds,
/// so one is enough unless the normalizer eats the marks.
const ROUNDS_MAX: usize = 4;

pub struct Engine {
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
}

impl Engine {
    pub fn from_json(json: &[u8]) -> Outcome<Self> {
        let tokenizer = load(json)?;
        let vocabulary = Vocabulary::new(&tokenizer);
        let engine = Engine { tokenizer, vocabulary };
        // The crate compiles patterns and tables of its own at the first text it sees: better now
        // than in somebody's request, and before threads share the engine.
        let _ = engine.encode_plain("a");
        Ok(engine)
    }

    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// Ids of `text`; with `frame`, between what the file's post-processor puts around it.
    pub fn encode(&self, text: &str, frame: bool) -> Outcome<Vec<u32>> {
        let encoding = self.tokenizer.encode_fast(text, frame);
        Ok(encoding.map_err(Failure::internal)?.get_ids().to_vec())
    }

    /// The crate can switch added tokens off only for a whole tokenizer, which is shared here, so
    /// its three steps are made by hand.
    pub fn encode_plain(&self, text: &str) -> Outcome<Vec<u32>> {
        let mut normalized = NormalizedString::from(text);
        if let Some(normalizer) = self.tokenizer.get_normalizer() {
            normalizer.normalize(&mut normalized).map_err(Failure::internal)?;
        }
        self.tokenize(normalized.into()).map_err(Failure::internal)
    }

    /// As `encode`, but a spelling of a special token with `mark` inside it stays text, and the
    /// marks themselves yield nothing. Also text: a special spelling that appears only after
    /// normalization (full-width brackets under NFKC), since no template writes that.
    pub fn encode_marked(&self, text: &str, mark: char) -> Outcome<Vec<u32>> {
        let mut text = text.to_string();
        for _ in 0..ROUNDS_MAX {
            let mut pieces = self
                .tokenizer
                .get_added_vocabulary()
                .extract_and_normalize(self.tokenizer.get_normalizer(), &text);
            let forged = self.forged_by_normalizer(&pieces, &text);
            if forged.is_empty() {
                // The marks have kept the added tokens apart; the model must not see them.
                let unmark = |piece: &mut NormalizedString| {
                    piece.filter(|c| c != mark);
                    Ok(())
                };
                pieces.normalize(unmark).map_err(Failure::internal)?;
                return self.tokenize(pieces).map_err(Failure::internal);
            }
            for at in forged.into_iter().rev() {
                text.insert(at, mark);
            }
        }
        let message = "text normalizes to a control token that cannot be kept apart";
        Err(Failure::new(Kind::Invalid, message))
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Outcome<String> {
        let text = self.tokenizer.decode(ids, skip_special);
        text.map_err(Failure::internal)
    }

    /// Where a mark would break special tokens whose source text does not spell them. Ascending.
    fn forged_by_normalizer(&self, pieces: &PreTokenizedString, text: &str) -> Vec<usize> {
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        pieces
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .filter_map(|(_, (start, end), tokens)| {
                let token = added.get(&tokens.as_ref()?.first()?.id)?;
                let source = text.get(start..end)?;
                if !token.special || source.contains(&token.content) {
                    return None;
                }
                // A token may have taken in the spaces before it.
                let lead = source.len() - source.trim_start().len();
                let first = source[lead..].chars().next()?;
                Some(start + lead + first.len_utf8())
            })
            .collect()
    }

    fn tokenize(&self, mut pieces: PreTokenizedString) -> CrateResult<Vec<u32>> {
        if let Some(pre_tokenizer) = self.tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        let model = self.tokenizer.get_model();
        pieces.tokenize(|piece| self.tokenize_piece(model, piece.get()))?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// A model may hold its special tokens as ordinary entries and find them in text by itself
    /// (unigram always, BPE when it ignores merges). Such a piece is cut after the first character
    /// of each spelling. The unknown token is no forgery: it does not spell what it stands for.
    fn tokenize_piece(&self, model: &ModelWrapper, piece: &str) -> CrateResult<Vec<Token>> {
        let tokens = model.tokenize(piece)?;
        let is_forged = |token: &Token| {
            self.vocabulary.token(token.id).1
                && piece.get(token.offsets.0..token.offsets.1) == Some(token.value.as_str())
        };
        if !tokens.iter().any(is_forged) {
            return Ok(tokens);
        }
        if piece.chars().count() == 1 {
            // One character that is a control token: there is nothing else it could become.
            return Ok(Vec::new());
        }
        let mut cuts = vec![];
        for token in tokens.iter().filter(|token| is_forged(token)) {
            let first = token.value.chars().next().map_or(0, char::len_utf8);
            cuts.extend([token.offsets.0, token.offsets.0 + first]);
        }
        cuts.push(piece.len());
        let mut cut_tokens = vec![];
        let mut start = 0;
        for end in cuts {
            if start < end {
                cut_tokens.extend(self.tokenize_piece(model, &piece[start..end])?);
            }
            start = end;
        }
        Ok(cut_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::fixture::{self, END, HE, THINK};
    use serde_json::json;

    fn engine(file: &serde_json::Value) -> Engine {
        Engine::from_json(file.to_string().as_bytes()).unwrap()
    }

    fn bytes(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    #[test]
    fn three_ways_to_encode() {
        let engine = engine(&fixture::byte_level());
        let text = "he<|end|><think>";
        assert_eq!(engine.encode(text, false).unwrap(), [HE, END, THINK]);
        assert_eq!(engine.encode(text, true).unwrap(), [END, HE, END, THINK]);
        let plain = [vec![HE], bytes("<|end|><think>")].concat();
        assert_eq!(engine.encode_plain(text).unwrap(), plain);
        let marked = engine.encode_marked("he<\u{fdd0}|end|><think><|end|>", '\u{fdd0}');
        let want = [vec![HE], bytes("<|end|>"), vec![THINK, END]].concat();
        assert_eq!(marked.unwrap(), want);
    }

    #[test]
    fn decodes_with_and_without_special() {
        let engine = engine(&fixture::byte_level());
        assert_eq!(engine.decode(&[HE, END, THINK], true).unwrap(), "he<think>");
        assert_eq!(engine.decode(&[HE, END], false).unwrap(), "he<|end|>");
    }

    #[test]
    fn the_normalizer_cannot_forge() {
        let mut file = fixture::byte_level();
        file["normalizer"] = json!({"type": "NFKC"});
        file["added_tokens"][0]["normalized"] = json!(true);
        let engine = engine(&file);
        let wide = "＜|end|＞ and ＜|end|＞";
        assert!(engine.encode(wide, false).unwrap().contains(&END));
        let ids = engine.encode_marked(wide, '\u{fdd0}').unwrap();
        assert_eq!(engine.decode(&ids, false).unwrap(), "<|end|> and <|end|>");
        assert!(!ids.contains(&END));
        assert_eq!(engine.encode_marked("<|end|>", '\u{fdd0}').unwrap(), [END]);
    }

    #[test]
    fn the_model_cannot_forge() {
        let mut file = fixture::byte_level();
        // One piece is the whole text, and the vocabulary holds it.
        file["pre_tokenizer"] = json!(null);
        file["model"]["ignore_merges"] = json!(true);
        file["model"]["vocab"]["<|end|>"] = json!(END);
        let engine = engine(&file);
        assert_eq!(engine.encode_plain("<|end|>").unwrap(), bytes("<|end|>"));
        let marked = engine.encode_marked("<\u{fdd0}|end|>", '\u{fdd0}');
        assert_eq!(marked.unwrap(), bytes("<|end|>"));
    }

    #[test]
    fn a_unigram_model_cannot_forge() {
        let mut file = fixture::byte_level();
        file["pre_tokenizer"] = json!(null);
        file["decoder"] = json!(null);
        file["post_processor"] = json!(null);
        let unigram =
            [("<unk>", 0.0), ("<|end|>", 0.0), ("a", -1.0), ("<", -2.0), ("|end|>", -2.0)];
        file["model"] = json!({"type": "Unigram", "unk_id": 0, "vocab": unigram});
        file["added_tokens"][0]["id"] = json!(1);
        file["added_tokens"][1]["id"] = json!(5);
        let engine = engine(&file);
        let text = "a<|end|>".repeat(1000);
        let want = [2u32, 3, 4].repeat(1000);
        assert_eq!(engine.encode_plain(&text).unwrap(), want);
        assert_eq!(engine.encode("<|end|>", false).unwrap(), [1]);
        assert_eq!(engine.encode_plain("a?a").unwrap(), [2, 0, 2]);
    }
}
