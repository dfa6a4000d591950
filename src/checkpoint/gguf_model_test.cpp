#include "checkpoint/gguf_model.h"

#include <cstdlib>

#include "checkpoint/checkpoint.h"
#include "checkpoint/test_files.h"

namespace tenon::checkpoint {
namespace {

Result<Loaded> load(const GgufBuilder& builder) {
  auto bytes = std::make_shared<std::vector<std::byte>>(exact(builder.build()));
  TENON_TRY(const GgufFile file, parse_gguf(*bytes, bytes, "m.gguf"));
  return gguf_model(file, "m.gguf");
}

GgufBuilder with_tokens(GgufBuilder b = tiny_llama_head()) {
  b.string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", {"a", "b", "a"});
  return b;
}

// Adds the tensors that make it whole and loads it.
Result<Loaded> finish(GgufBuilder b) {
  add_tiny_llama_tensors(b);
  return load(b);
}

TEST(GgufModel, LlamaInHuggingFaceSpelling) {
  GgufBuilder b = with_tokens();
  b.string("tokenizer.ggml.pre", "smollm").strings("tokenizer.ggml.merges", {"a b"});
  b.array("tokenizer.ggml.token_type", 5, 3, raw<int32_t>(1) + raw<int32_t>(3) + raw<int32_t>(1));
  b.array("tokenizer.ggml.scores", 6, 3, raw(0.5f) + raw(1.0f) + raw(2.0f));
  b.u32("tokenizer.ggml.bos_token_id", 0).u32("tokenizer.ggml.eos_token_id", 1);
  b.u32("tokenizer.ggml.eot_token_id", 2).boolean("tokenizer.ggml.add_bos_token", false);
  b.u32("tokenizer.ggml.padding_token_id", 3);  // past the end: the file has no padding token
  b.string("tokenizer.chat_template", "{{ messages }}");
  const auto loaded = finish(b);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->manifest.container, "gguf");
  EXPECT_EQ(
      dump_json(loaded->manifest.config),
      R"({"model_type":"llama","hidden_size":4,"num_hidden_layers":1,"intermediate_size":8,)"
      R"("num_attention_heads":2,"num_key_value_heads":1,"rms_norm_eps":1e-05,)"
      R"("max_position_embeddings":64,"rope_theta":10000.0,"vocab_size":3,"rope_traditional":true,)"
      R"("bos_token_id":0,"eos_token_id":[1,2],"tie_word_embeddings":true})");
  EXPECT_EQ(dump_json(loaded->text.gguf_vocab),
            R"({"model":"gpt2","pre":"smollm","tokens":["a","b","a"],"token_types":[1,3,1],)"
            R"("scores":[0.5,1.0,2.0],"merges":["a b"],"bos_id":0,"eos_id":1,"eot_id":2,)"
            R"("add_bos":false})");
  EXPECT_EQ(loaded->text.chat_template, "{{ messages }}");
  EXPECT_TRUE(loaded->quantization.is_null());
  Weights weights(loaded->tensors, "m.gguf");
  EXPECT_FALSE(weights.find("model.norm.weight")->from_file) << "these bytes lie on the heap";
  EXPECT_TRUE(weights.take("model.embed_tokens.weight", {3, 4}).ok());
  EXPECT_TRUE(weights.take("model.norm.weight", {4}).ok());
  EXPECT_TRUE(weights.take("model.layers.0.input_layernorm.weight", {4}).ok());
  EXPECT_TRUE(weights.take("model.layers.0.post_attention_layernorm.weight", {4}).ok());
  const std::string layer = "model.layers.0.";
  EXPECT_TRUE(weights.take_linear(layer + "self_attn.q_proj", 4, 4).ok());
  EXPECT_TRUE(weights.take_linear(layer + "self_attn.k_proj", 2, 4).ok());
  EXPECT_TRUE(weights.take_linear(layer + "self_attn.v_proj", 2, 4).ok());
  EXPECT_TRUE(weights.take_linear(layer + "self_attn.o_proj", 4, 4).ok());
  EXPECT_TRUE(weights.take_linear(layer + "mlp.gate_proj", 8, 4).ok());
  EXPECT_TRUE(weights.take_linear(layer + "mlp.up_proj", 8, 4).ok());
  EXPECT_TRUE(weights.take_linear(layer + "mlp.down_proj", 4, 8).ok());
  EXPECT_TRUE(weights.finish().ok());
}

TEST(GgufModel, OptionalPartsChangeTheConfig) {
  GgufBuilder b = tiny_llama_head();
  b.u32("llama.attention.key_length", 2).string("llama.rope.scaling.type", "yarn");
  b.f32("llama.rope.scaling.factor", 4).u32("llama.rope.scaling.original_context_length", 16);
  b.tensor("output.weight", {4, 3}, 0, 48).tensor("blk.0.attn_q.bias", {4}, 0, 16);
  const auto loaded = finish(b);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Json& config = loaded->manifest.config;
  EXPECT_EQ(config["head_dim"], 2);
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["attention_bias"], true);
  EXPECT_EQ(dump_json(config["rope_scaling"]),
            R"({"type":"yarn","factor":4.0,"original_max_position_embeddings":16})");
  EXPECT_FALSE(config.contains("eos_token_id"));
  EXPECT_TRUE(loaded->text.gguf_vocab.is_null());
}

struct Damage {
  const char* what;
  GgufBuilder file;
  Code code;
  std::vector<std::string> message;
};

TEST(GgufModel, DamageIsNamed) {
  using B = GgufBuilder;
  const auto head = [] { return tiny_llama_head(); };
  const auto toks = [] { return with_tokens(); };
  B other, no_arch, deep, no_width, heads;
  other.string("general.architecture", "mamba");
  no_arch.u32("k", 1);
  deep.string("general.architecture", "llama")
      .u32("llama.embedding_length", 4)
      .u32("llama.block_count", 10001);
  no_width.string("general.architecture", "llama").u32("llama.block_count", 1);
  heads.string("general.architecture", "llama")
      .u32("llama.embedding_length", 4)
      .u32("llama.block_count", 1);
  heads.u32("llama.feed_forward_length", 8)
      .array("llama.attention.head_count", 4, 1, raw<uint32_t>(2));
  const Damage table[] = {
      {"architecture", other, Code::unsupported, {"mamba", "supported: llama"}},
      {"no architecture", no_arch, Code::not_found, {"general.architecture"}},
      {"10001 layers", deep, Code::corrupt, {"llama.block_count", "10001"}},
      {"no width", no_width, Code::not_found, {"llama.embedding_length"}},
      {"heads per layer", heads, Code::corrupt, {"llama.attention.head_count"}},
      {"split",
       head().raw_value("split.count", 2, raw<uint16_t>(3)),
       Code::unsupported,
       {"3 parts"}},
      {"experts", head().u32("llama.expert_count", 8), Code::unsupported, {"llama.expert_count"}},
      {"vocab_size",
       head().u32("llama.vocab_size", 9),
       Code::corrupt,
       {"llama.vocab_size", "token_embd.weight"}},
      {"partial rotary",
       head().u32("llama.rope.dimension_count", 1),
       Code::unsupported,
       {"rope.dimension_count"}},
      {"scaling type",
       head().string("llama.rope.scaling.type", "longrope"),
       Code::unsupported,
       {"longrope"}},
      {"scaling factor",
       head().string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 0),
       Code::corrupt,
       {"scaling.factor"}},
      {"unknown tensor",
       head().tensor("rope_sizes.weight", {1}, 0, 4),
       Code::unsupported,
       {"rope_sizes.weight"}},
      {"extra layer",
       head().tensor("blk.1.attn_q.weight", {4, 4}, 0, 64),
       Code::unsupported,
       {"blk.1.attn_q.weight"}},
      {"layer 00",
       head().tensor("blk.00.attn_q.weight", {4, 4}, 0, 64),
       Code::unsupported,
       {"blk.00.attn_q.weight"}},
      {"bos past the end",
       toks().u32("tokenizer.ggml.bos_token_id", 3),
       Code::corrupt,
       {"bos_token_id is 3", "3 tokens"}},
      {"eos past the end",
       toks().u32("tokenizer.ggml.eos_token_id", 99),
       Code::corrupt,
       {"eos_token_id is 99"}},
      {"eos is text",
       toks().string("tokenizer.ggml.eos_token_id", "2"),
       Code::corrupt,
       {"eos_token_id"}},
      {"scores as text",
       toks().strings("tokenizer.ggml.scores", {"1", "2", "3"}),
       Code::corrupt,
       {"tokenizer.ggml.scores"}},
      {"scores short",
       toks().array("tokenizer.ggml.scores", 6, 1, raw(1.0f)),
       Code::corrupt,
       {"tokenizer.ggml.scores has 1"}},
      {"types as floats",
       toks().array("tokenizer.ggml.token_type", 6, 3, std::string(12, '\0')),
       Code::corrupt,
       {"tokenizer.ggml.token_type"}},
      {"merges as ints",
       toks().array("tokenizer.ggml.merges", 5, 1, std::string(4, '\0')),
       Code::corrupt,
       {"tokenizer.ggml.merges"}},
      {"no tokens",
       head().string("tokenizer.ggml.model", "gpt2"),
       Code::not_found,
       {"tokenizer.ggml.tokens"}},
      {"too many tokens",
       head()
           .string("tokenizer.ggml.model", "gpt2")
           .strings("tokenizer.ggml.tokens", {"a", "b", "c", "d"}),
       Code::corrupt,
       {"tokenizer.ggml.tokens", "4"}},
  };
  for (const Damage& d : table) {
    auto message = d.message;
    message.push_back("m.gguf");
    expect_error(finish(d.file), d.code, message, d.what);
  }
  expect_error(load(tiny_llama_head()), Code::not_found, {"token_embd.weight"}, "no tensors");
}

// Tokens of the same text are in real files; they are data, not damage.
TEST(GgufModel, DuplicateTokensAndNoBosLoad) {
  const auto loaded = finish(with_tokens());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->text.gguf_vocab["tokens"].size(), 3u);
  EXPECT_FALSE(loaded->text.gguf_vocab.contains("bos_id"));
}

TEST(GgufModel, SmolLm2) {
  const char* root = std::getenv("TENON_SOURCE_DIR");
  const std::string path =
      std::string(root ? root : ".") + "/share/models/smollm2-135m-instruct-q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  auto opened = Checkpoint::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Checkpoint& model = **opened;
  EXPECT_EQ(
      dump_json(model.manifest().config),
      R"({"model_type":"llama","hidden_size":576,"num_hidden_layers":30,"intermediate_size":1536,)"
      R"("num_attention_heads":9,"num_key_value_heads":3,"rms_norm_eps":1e-05,)"
      R"("max_position_embeddings":8192,"rope_theta":100000.0,"vocab_size":49152,)"
      R"("rope_traditional":true,"bos_token_id":1,"eos_token_id":2,"tie_word_embeddings":true})");
  EXPECT_EQ(model.text().gguf_vocab["tokens"].size(), 49152u);
  EXPECT_EQ(model.text().gguf_vocab["tokens"][2], "<|im_end|>");
  EXPECT_THAT(model.text().chat_template, testing::StartsWith("{% for message in messages %}"));

  Weights& weights = model.weights();
  EXPECT_EQ(weights.names().size(), 272u);
  const auto embedding = weights.take("model.embed_tokens.weight", {49152, 576});
  ASSERT_TRUE(embedding.ok());
  EXPECT_EQ(embedding->format, Format::q8_0);
  EXPECT_TRUE(embedding->from_file);
  EXPECT_TRUE(weights.take("model.norm.weight", {576}).ok());
  for (int i = 0; i < 30; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    EXPECT_TRUE(weights.take(layer + "input_layernorm.weight", {576}).ok());
    EXPECT_TRUE(weights.take(layer + "post_attention_layernorm.weight", {576}).ok());
    const auto q = weights.take_linear(layer + "self_attn.q_proj", 576, 576);
    ASSERT_TRUE(q.ok()) << q.error().message;
    EXPECT_EQ(q->weight.format, Format::q4_1);
    EXPECT_TRUE(weights.take_linear(layer + "self_attn.k_proj", 192, 576).ok());
    EXPECT_TRUE(weights.take_linear(layer + "self_attn.v_proj", 192, 576).ok());
    EXPECT_TRUE(weights.take_linear(layer + "self_attn.o_proj", 576, 576).ok());
    EXPECT_TRUE(weights.take_linear(layer + "mlp.gate_proj", 1536, 576).ok());
    EXPECT_TRUE(weights.take_linear(layer + "mlp.up_proj", 1536, 576).ok());
    EXPECT_TRUE(weights.take_linear(layer + "mlp.down_proj", 576, 1536).ok());
  }
  EXPECT_TRUE(weights.finish().ok());
}

}  // namespace
}  // namespace tenon::checkpoint
