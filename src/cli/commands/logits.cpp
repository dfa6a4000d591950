// tenon logits: every row of logits for given ids and some greedy steps, into a safetensors file.
// With P prompt ids and N steps: `logits` float32 [P+N, V], row i follows ids[0..i]; `ids` int32
// [P+N+1]. Needs no tokenizer. The rows of --batch-with share the batch but are not written.
#include <algorithm>
#include <cstdio>

#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "cli/model_flags.h"

namespace tenon::cli {

namespace {

constexpr int kIdMax = 0x7fffffff;

struct Collected {
  std::vector<float> logits;
  std::vector<int32_t> ids;
  int rows = 0;
};

class LogitsVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    model_.declare(flags);
    model_.declare_drafts(flags);
    flags.int_list("ids", &prompt_, 0, kIdMax, "prompt ids");
    flags.integer("steps", &steps_, 0, 1 << 20, "greedy steps after the prompt");
    flags.text("out", &out_, "the file to write", "F.safetensors");
    flags.integer("chunk", &model_.options().prefill_chunk, 0, 1 << 20,
                  "prompt tokens of one step; 0: as the engine chooses", "TOKENS");
    auto add_list = [this](const std::string& text) -> std::string {
      std::optional<std::vector<int>> list = to_int_list(text, 0, kIdMax);
      if (!list) return "must be ids, comma separated";
      batch_with_.emplace_back(list->begin(), list->end());
      return "";
    };
    flags.add("batch-with", "N,N,...", "ids of another row in the same batch (may be repeated)",
              add_list, {.repeat = true});
  }

  Status check() override {
    if (prompt_.empty()) return invalid("--ids: missing; give the prompt ids, comma separated");
    if (out_.empty()) return invalid("--out: missing; give the file to write");
    return {};
  }

  Result<int> run() override {
    engine::EngineOptions& options = model_.options();
    options.start_paused = true;  // all rows meet in the first step
    options.max_batch = 1 + static_cast<int>(batch_with_.size());
    TENON_TRY(auto engine, model_.load());
    TENON_TRY(auto model, engine->model(""));
    TENON_TRY(auto generation, engine->submit(request({prompt_.begin(), prompt_.end()}, true)));
    std::vector<std::shared_ptr<engine::Generation>> others;
    for (const std::vector<int32_t>& ids : batch_with_) {
      TENON_TRY(auto other, engine->submit(request(ids, false)));
      others.push_back(std::move(other));
    }
    engine->resume();
    TENON_TRY(Collected got, collect(*generation, model->vocab_size));
    for (auto& other : others) other->cancel();
    TENON_OK(write(got, *model));
    return 0;
  }

 private:
  engine::GenerationRequest request(std::vector<int32_t> ids, bool want_logits) const {
    engine::GenerationRequest request;
    request.prompt_ids = std::move(ids);
    request.sampling.temperature = 0;
    request.ignore_end = true;
    request.want_logits = want_logits;
    request.max_tokens = steps_ + 1;  // the last row draws a token too
    return request;
  }

  Result<Collected> collect(engine::Generation& generation, int vocab) const {
    size_t rows = prompt_.size() + static_cast<size_t>(steps_);
    Collected got;
    got.ids.assign(prompt_.begin(), prompt_.end());
    got.logits.resize(rows * static_cast<size_t>(vocab));
    std::vector<bool> seen(rows);
    for (;;) {
      std::optional<engine::Event> event = generation.events.pop();
      if (!event) return internal("the engine ended without a last event");
      if (auto* token = std::get_if<engine::Token>(&*event)) got.ids.push_back(token->id);
      if (auto* row = std::get_if<engine::Logits>(&*event)) {
        size_t at = static_cast<size_t>(row->position);
        if (at >= rows || seen[at] || row->row.size() != static_cast<size_t>(vocab)) {
          return internal("logits of position {} came twice or misshapen", row->position);
        }
        seen[at] = true;
        std::copy(row->row.begin(), row->row.end(),
                  got.logits.begin() + static_cast<std::ptrdiff_t>(at * row->row.size()));
        ++got.rows;
      }
      if (auto* finished = std::get_if<engine::Finished>(&*event)) {
        if (finished->reason == FinishReason::error) return finished->error;
        break;
      }
    }
    if (got.rows != static_cast<int>(rows) || got.ids.size() != rows + 1) {
      return internal("{} of {} rows and {} of {} ids came; is the window (--context) too small?",
                      got.rows, rows, got.ids.size(), rows + 1);
    }
    return got;
  }

  Status write(const Collected& got, const engine::Model& model) const {
    int64_t vocab = model.vocab_size;
    std::vector<WeightView> tensors{
        {std::as_bytes(std::span(got.logits)), {got.rows, vocab}, Format::f32, nullptr, "logits"},
        {std::as_bytes(std::span(got.ids)),
         {static_cast<int64_t>(got.ids.size())},
         Format::i32,
         nullptr,
         "ids"}};
    std::map<std::string, std::string> metadata{{"model", model.name},
                                                {"profile", model.profile_id},
                                                {"kernels", model.kernels},
                                                {"dtype", model.dtype},
                                                {"device", model.device}};
    TENON_OK(checkpoint::write_safetensors(out_, tensors, metadata));
    std::printf("%s: logits [%d, %lld], ids [%zu]; kernels %s, dtype %s, device %s\n", out_.c_str(),
                got.rows, static_cast<long long>(vocab), got.ids.size(), model.kernels.c_str(),
                model.dtype.c_str(), model.device.c_str());
    return {};
  }

  ModelFlags model_;
  std::vector<int> prompt_;
  std::vector<std::vector<int32_t>> batch_with_;
  int steps_ = 0;
  std::string out_;
};

}  // namespace

TENON_COMMAND(logits, "logits of given ids, as a safetensors file", LogitsVerb);

}  // namespace tenon::cli
