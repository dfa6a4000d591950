// tenon bench: prefill and decode speed and time to first token, medians over repeats.
#include <algorithm>
#include <cstdio>

#include "cli/bench_run.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"

namespace tenon::cli {

namespace {

class BenchVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    model_.options().threads = 2;
    // Throughput is what is asked here: prompts are computed in the largest pieces, whoever waits.
    model_.options().gap_ms = 10'000;
    model_.declare(flags);
    model_.declare_drafts(flags);
    flags.int_list("prompt-len", &prompt_lens_, 1, 1 << 24, "prompt tokens, a list");
    flags.int_list("gen-len", &gen_lens_, 1, 1 << 24, "generated tokens, a list");
    flags.int_list("batch", &batches_, 1, 1024, "requests at once, a list");
    flags.integer("repeat", &repeat_, 1, 1000, "measured runs of each case");
    flags.toggle("json", &json_, "one JSON object a line");
  }

  Result<int> run() override {
    model_.options().max_batch = *std::max_element(batches_.begin(), batches_.end());
    TENON_TRY(auto engine, model_.load());
    TENON_TRY(auto model, engine->model(""));
    if (!json_) print_head(*model);
    for (int batch : batches_) {
      for (int prompt_len : prompt_lens_) {
        for (int gen_len : gen_lens_) {
          TENON_OK(measure(*engine, *model, {prompt_len, gen_len, batch}));
        }
      }
    }
    return 0;
  }

 private:
  Status measure(engine::Engine& engine, const engine::Model& model, const BenchCase& what) {
    ProgressBar bar;
    BenchCase warm_up{std::min(what.prompt_len, 32), std::min(what.gen_len, 4), what.batch};
    if (auto warm = bench_once(engine, model, warm_up, 1); !warm) return warm.error();
    std::vector<double> prefill, decode, ttft;
    for (int i = 0; i < repeat_; ++i) {
      bar.show("bench", static_cast<double>(i) / repeat_);
      TENON_TRY(BenchSample sample, bench_once(engine, model, what, 2 + static_cast<uint64_t>(i)));
      prefill.push_back(sample.prefill_tok_s);
      decode.push_back(sample.decode_tok_s);
      ttft.push_back(sample.ttft_ms);
    }
    bar.done();
    report(model, what, spread_of(prefill), spread_of(decode), spread_of(ttft));
    return {};
  }

  void report(const engine::Model& model, const BenchCase& what, const Spread& prefill,
              const Spread& decode, const Spread& ttft) const {
    if (!json_) {
      auto cell = [](const Spread& value) {
        return fmt::format("{:.1f} ({:.1f}-{:.1f})", value.median, value.min, value.max);
      };
      std::printf("%6d  %6d  %5d  %-24s  %-24s  %s\n", what.prompt_len, what.gen_len, what.batch,
                  cell(prefill).c_str(), cell(decode).c_str(), cell(ttft).c_str());
    } else {
      auto range = [](const Spread& value) { return Json::array({value.min, value.max}); };
      Json line = {{"prompt_len", what.prompt_len},
                   {"gen_len", what.gen_len},
                   {"batch", what.batch},
                   {"threads", model_.threads()},
                   {"draft", model.draft},
                   {"prefill_tok_s", prefill.median},
                   {"decode_tok_s", decode.median},
                   {"ttft_ms", ttft.median},
                   {"spread",
                    {{"prefill_tok_s", range(prefill)},
                     {"decode_tok_s", range(decode)},
                     {"ttft_ms", range(ttft)}}},
                   {"repeat", repeat_},
                   {"model", model.name},
                   {"kernels", model.kernels},
                   {"dtype", model.dtype},
                   {"device", model.device}};
      std::printf("%s\n", dump_json(line).c_str());
    }
    std::fflush(stdout);
  }

  void print_head(const engine::Model& model) const {
    std::printf("%s; kernels %s, dtype %s, device %s, threads %d; median (min-max) of %d\n",
                model.name.c_str(), model.kernels.c_str(), model.dtype.c_str(),
                model.device.c_str(), model_.threads(), repeat_);
    std::printf("%6s  %6s  %5s  %-24s  %-24s  %s\n", "prompt", "gen", "batch", "prefill tok/s",
                "decode tok/s", "first token ms");
    std::fflush(stdout);
  }

  ModelFlags model_;
  std::vector<int> prompt_lens_{512}, gen_lens_{128}, batches_{1};
  int repeat_ = 5;
  bool json_ = false;
};

}  // namespace

TENON_COMMAND(bench, "prefill and decode speed", BenchVerb);

}  // namespace tenon::cli
