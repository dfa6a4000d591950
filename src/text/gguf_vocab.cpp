#include "text/gguf_vocab.h"

#include <algorithm>

#include "text/utf8.h"

namespace tenon::text {

namespace {

constexpr size_t kTokensMax = 1 << 24;

// How text is cut into words before merging.
enum class Split { gpt2, digits_gpt2, llama3, qwen2, qwen35 };

struct SplitRule {
  std::string_view name;
  Split split;
  // Llama 3's family: a word that is a token needs no merges, and bos is on unless the file says
  // no.
  bool whole_words = false;
  bool add_bos = false;
  bool nfc = false;
};

constexpr SplitRule kSplitRules[] = {
    {"", Split::gpt2},
    {"default", Split::gpt2},
    {"gpt-2", Split::gpt2},
    {"jais", Split::gpt2},
    {"mpt", Split::gpt2},
    {"olmo", Split::gpt2},
    {"phi-2", Split::gpt2},
    {"trillion", Split::gpt2},
    {"codeshell", Split::digits_gpt2},
    {"command-r", Split::digits_gpt2},
    {"exaone", Split::digits_gpt2},
    {"minerva-7b", Split::digits_gpt2},
    {"refact", Split::digits_gpt2},
    {"smollm", Split::digits_gpt2},
    {"starcoder", Split::digits_gpt2},
    {"dbrx", Split::llama3},
    {"smaug-bpe", Split::llama3},
    {"falcon3", Split::llama3, true, true},
    {"falcon-h1", Split::llama3, true, true},
    {"lfm2", Split::llama3, true, true},
    {"llama-bpe", Split::llama3, true, true},
    {"llama-v3", Split::llama3, true, true},
    {"llama3", Split::llama3, true, true},
    {"deepseek-r1-qwen", Split::qwen2, false, false, true},
    {"qwen2", Split::qwen2, false, false, true},
    {"stablelm2", Split::qwen2, false, false, true},
    {"qwen35", Split::qwen35, false, false, true},
};

// The branches of the regular expressions that differ only in what a word and a number are.
std::string word_regex(std::string_view letter, std::string_view number, std::string_view other) {
  return fmt::format(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?{}+|{}| ?{}+[\r\n]*|)"
                     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
                     letter, number, other);
}

FastJson byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

FastJson sequence(FastJson first, FastJson second) {
  return {{"type", "Sequence"},
          {"pretokenizers", FastJson::array({std::move(first), std::move(second)})}};
}

FastJson by_regex(const std::string& regex) {
  return sequence({{"type", "Split"},
                   {"pattern", {{"Regex", regex}}},
                   {"behavior", "Isolated"},
                   {"invert", false}},
                  byte_level(false));
}

FastJson pre_tokenizer(Split split) {
  switch (split) {
    case Split::gpt2: return byte_level(true);
    case Split::digits_gpt2:
      return sequence({{"type", "Digits"}, {"individual_digits", true}}, byte_level(true));
    case Split::llama3:
      return by_regex(word_regex(R"(\p{L})", R"(\p{N}{1,3})", R"([^\s\p{L}\p{N}])"));
    case Split::qwen2: return by_regex(word_regex(R"(\p{L})", R"(\p{N})", R"([^\s\p{L}\p{N}])"));
    case Split::qwen35:
      return by_regex(word_regex(R"([\p{L}\p{M}])", R"(\p{N})", R"([^\s\p{L}\p{M}\p{N}])"));
  }
  return nullptr;
}

Result<SplitRule> find_rule(const GgufVocab& vocab) {
  const auto* rule = std::ranges::find(kSplitRules, vocab.pre, &SplitRule::name);
  if (rule == std::end(kSplitRules))
    return unsupported("GGUF tokenizer split rule (tokenizer.ggml.pre) \"{}\" is not known",
                       vocab.pre);
  return *rule;
}

Status check(const GgufVocab& vocab) {
  const size_t size = vocab.tokens.size();
  if (size == 0 || size > kTokensMax)
    return corrupt("GGUF tokenizer: {} tokens, must be 1 to {}", size, kTokensMax);
  if (!vocab.token_types.empty() && vocab.token_types.size() != size)
    return corrupt("GGUF tokenizer: {} token types for {} tokens", vocab.token_types.size(), size);
  for (size_t id = 0; id < size; ++id)
    if (!is_utf8(vocab.tokens[id])) return corrupt("GGUF tokenizer: token {} is not UTF-8", id);
  const std::pair<const char*, std::optional<int32_t>> named[] = {{"bos", vocab.bos_id},
                                                                  {"eos", vocab.eos_id},
                                                                  {"unknown", vocab.unk_id},
                                                                  {"padding", vocab.pad_id}};
  for (const auto& [name, id] : named)
    if (id && (*id < 0 || static_cast<size_t>(*id) >= size))
      return corrupt("GGUF tokenizer: {}_token_id is {}, outside the {} tokens", name, *id, size);
  return {};
}

// "left right"; a left part may begin with the space.
Result<FastJson> merge_pairs(const std::vector<std::string>& merges) {
  FastJson pairs = FastJson::array();
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string& merge = merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size() || !is_utf8(merge))
      return corrupt("GGUF tokenizer: merge {} is not two tokens", i);
    pairs.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  return pairs;
}

bool is_special(const GgufVocab& vocab, int32_t id) {
  if (!vocab.token_types.empty()) return vocab.token_types[static_cast<size_t>(id)] == kControl;
  // Without types only the named tokens are known to be control tokens.
  return id == vocab.bos_id || id == vocab.eos_id || id == vocab.unk_id || id == vocab.pad_id;
}

FastJson added_token(int32_t id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// What encode_with_specials puts around the text. A flag without its id adds nothing.
FastJson post_processor(const GgufVocab& vocab, bool add_bos) {
  FastJson single = FastJson::array();
  FastJson used = FastJson::object();
  const auto add = [&](std::optional<int32_t> id) {
    if (!id) return;
    const std::string& name = vocab.tokens[static_cast<size_t>(*id)];
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    used[name] = {{"id", name}, {"ids", {*id}}, {"tokens", {name}}};
  };
  const auto text = [](const char* name) {
    return FastJson{{"Sequence", {{"id", name}, {"type_id", 0}}}};
  };
  if (vocab.add_bos.value_or(add_bos)) add(vocab.bos_id);
  single.push_back(text("A"));
  if (vocab.add_eos.value_or(false)) add(vocab.eos_id);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", FastJson::array({text("A"), text("B")})},
          {"special_tokens", used}};
}

// Model "gpt2": BPE over bytes.
Result<GgufWords> byte_level_words(const GgufVocab& vocab) {
  TENON_TRY(const SplitRule rule, find_rule(vocab));
  GgufWords words;
  TENON_TRY(words.merges, merge_pairs(vocab.merges));
  if (rule.nfc) words.normalizer = {{"type", "NFC"}};
  words.pre_tokenizer = pre_tokenizer(rule.split);
  words.decoder = byte_level(true);
  words.whole_words = rule.whole_words;
  words.add_bos = rule.add_bos;
  return words;
}

Result<GgufWords> words_of(const GgufVocab& vocab) {
  if (vocab.model == "gpt2") return byte_level_words(vocab);
  if (vocab.model == "llama") return sentencepiece_words(vocab);
  return unsupported("GGUF tokenizer model \"{}\" is not supported, only \"gpt2\" and \"llama\"",
                     vocab.model);
}

FastJson model_of(const GgufVocab& vocab, GgufWords& words) {
  FastJson unknown = nullptr;
  if (words.byte_fallback && vocab.unk_id) unknown = vocab.tokens[*vocab.unk_id];
  FastJson model = {{"type", "BPE"},
                    {"dropout", nullptr},
                    {"unk_token", unknown},
                    {"continuing_subword_prefix", nullptr},
                    {"end_of_word_suffix", nullptr},
                    {"fuse_unk", words.byte_fallback},
                    {"byte_fallback", words.byte_fallback},
                    {"ignore_merges", words.whole_words}};
  model["merges"] = std::move(words.merges);
  return model;
}

}  // namespace

Result<GgufTokenizer> convert_gguf_vocab(const GgufVocab& vocab) {
  TENON_OK(check(vocab));
  TENON_TRY(GgufWords words, words_of(vocab));

  GgufTokenizer out;
  out.repeated.vocab_size = static_cast<int32_t>(vocab.tokens.size());
  FastJson ids = FastJson::object();
  FastJson added = FastJson::array();
  for (int32_t id = 0; id < out.repeated.vocab_size; ++id) {
    const std::string& token = vocab.tokens[static_cast<size_t>(id)];
    const auto [it, is_new] = ids.get_ref<FastJson::object_t&>().emplace(token, id);
    if (!is_new) {
      out.repeated.first.emplace(id, it->second.get<int32_t>());
      continue;
    }
    const bool special = is_special(vocab, id);
    const bool user_defined =
        !vocab.token_types.empty() && vocab.token_types[static_cast<size_t>(id)] == kUserDefined;
    if ((special || user_defined) && !token.empty())
      added.push_back(added_token(id, token, special));
  }

  FastJson model = model_of(vocab, words);
  model["vocab"] = std::move(ids);
  FastJson file = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  file["added_tokens"] = std::move(added);
  file["normalizer"] = std::move(words.normalizer);
  file["pre_tokenizer"] = std::move(words.pre_tokenizer);
  file["post_processor"] = post_processor(vocab, words.add_bos);
  file["decoder"] = std::move(words.decoder);
  file["model"] = std::move(model);
  out.tokenizer_json = file.dump();
  return out;
}

}  // namespace tenon::text
