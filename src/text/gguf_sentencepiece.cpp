// SentencePiece vocabularies in GGUF files: tokens with scores, spaces as U+2581, bytes for what is
// no token. SentencePiece joins, of all neighbours, those whose joint token has the best score; the
// merges of a tokenizer.json say the same as a list: every way to cut a token in two tokens, in
// order of the scores. Source: https://github.com/google/sentencepiece (bpe_model.cc).
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "text/gguf_vocab.h"
#include "text/utf8.h"

namespace tenon::text {

namespace {

constexpr const char* kSpace = "\u2581";
constexpr size_t kTokenBytesMax = 512;  // cutting a token costs the square of its length

struct Merge {
  std::string_view left, right;
  float score;
};

// Tokens that merging can reach: not control tokens, bytes and the unknown.
bool is_joined(const GgufVocab& vocab, size_t id) {
  if (vocab.token_types.empty()) return true;
  return vocab.token_types[id] == kNormal || vocab.token_types[id] == kUserDefined;
}

Status check_scores(const GgufVocab& vocab) {
  if (vocab.scores.size() != vocab.tokens.size())
    return corrupt("GGUF tokenizer: tokenizer.ggml.scores has {} entries for {} tokens",
                   vocab.scores.size(), vocab.tokens.size());
  for (size_t id = 0; id < vocab.scores.size(); ++id)
    if (std::isnan(vocab.scores[id]))
      return corrupt("GGUF tokenizer: tokenizer.ggml.scores[{}] is not a number", id);
  return {};
}

Result<std::vector<Merge>> merges_of(const GgufVocab& vocab) {
  std::unordered_map<std::string_view, size_t> ids;
  ids.reserve(vocab.tokens.size());
  for (size_t id = 0; id < vocab.tokens.size(); ++id)
    if (is_joined(vocab, id)) ids.emplace(vocab.tokens[id], id);
  std::vector<Merge> merges;
  for (const auto& [token, id] : ids) {
    if (token.size() > kTokenBytesMax)
      return unsupported("GGUF tokenizer: token {} is {} bytes long, at most {} are supported", id,
                         token.size(), kTokenBytesMax);
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if ((static_cast<unsigned char>(token[cut]) & 0xC0) == 0x80) continue;  // inside a character
      const std::string_view left = token.substr(0, cut), right = token.substr(cut);
      if (ids.contains(left) && ids.contains(right))
        merges.push_back({left, right, vocab.scores[id]});
    }
  }
  // Ties as transformers' converter breaks them; the spelling makes the order total.
  std::ranges::sort(merges, [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.left.size() != b.left.size()) return a.left.size() > b.left.size();
    if (a.right.size() != b.right.size()) return a.right.size() > b.right.size();
    return std::tie(a.left, a.right) < std::tie(b.left, b.right);
  });
  return merges;
}

FastJson replace(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

}  // namespace

Result<GgufWords> sentencepiece_words(const GgufVocab& vocab) {
  TENON_OK(check_scores(vocab));
  TENON_TRY(const std::vector<Merge> merges, merges_of(vocab));
  GgufWords words;
  words.merges = FastJson::array();
  auto& pairs = words.merges.get_ref<FastJson::array_t&>();
  pairs.reserve(merges.size());
  for (const Merge& merge : merges) pairs.push_back({merge.left, merge.right});
  words.byte_fallback = true;
  words.add_bos = true;
  const bool prefix = vocab.add_space_prefix.value_or(true);
  FastJson normalizers = FastJson::array(), decoders = FastJson::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back(replace(" ", kSpace));
  decoders.push_back(replace(kSpace, " "));
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  words.normalizer = {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}};
  words.decoder = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  return words;
}

}  // namespace tenon::text
