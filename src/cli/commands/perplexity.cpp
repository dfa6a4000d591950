// tenon perplexity: how well a model predicts a text: exp of the mean negative log-likelihood of
// its tokens, each given the tokens before it in its window.
#include <chrono>
#include <cmath>
#include <cstdio>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"
#include "cli/text_rows.h"

namespace tenon::cli {

namespace {

// Sums over the tokens scored so far.
struct Score {
  size_t tokens = 0;
  double nll = 0, squares = 0;

  void add(double x) {
    ++tokens;
    nll += x;
    squares += x * x;
  }
  double mean() const { return nll / static_cast<double>(tokens); }
  // Of the mean, as if tokens were independent.
  double standard_error() const {
    const double n = static_cast<double>(tokens);
    return n < 2 ? 0 : std::sqrt(std::max(0.0, squares / n - mean() * mean()) / (n - 1));
  }
};

class PerplexityVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    model_.options().context_len = 512;
    model_.declare(flags);
    flags.text("file", &file_, "the text", "TEXT");
    flags.integer("stride", &stride_, 0, 1 << 24,
                  "from one window of --context to the next; less: more context; 0: a window",
                  "TOKENS");
    flags.toggle("json", &json_, "one JSON object");
  }

  Status check() override {
    if (file_.empty()) return invalid("--file: missing; give the text to read");
    return {};
  }

  Result<int> run() override {
    TENON_TRY(const std::string text, read_text_file(file_));
    model_.options().max_batch = 1;
    TENON_TRY(auto engine, model_.load());
    TENON_TRY(auto model, engine->model(""));
    TENON_TRY(const std::vector<int32_t> ids, encode_text(*model, text));
    const int context = model->context_len;
    const int stride = stride_ > 0 ? stride_ : context;
    if (stride > context)
      return invalid("--stride {}: more than the window of {}", stride, context);
    const auto windows = cut_windows(ids.size(), context, stride);
    if (windows.empty())
      return invalid("--file {}: {} tokens; a prediction needs two", file_, ids.size());
    const auto start = std::chrono::steady_clock::now();
    TENON_TRY(const Score score, measure(*engine, ids, windows));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    report(*model, ids.size(), stride, score, took.count());
    return 0;
  }

 private:
  static Result<Score> measure(engine::Engine& engine, const std::vector<int32_t>& ids,
                               const std::vector<TextWindow>& windows) {
    ProgressBar bar;
    Score score;
    for (const TextWindow& window : windows) {
      // The window's last token is only predicted, never read.
      const auto at = ids.begin() + static_cast<std::ptrdiff_t>(window.begin);
      const size_t len = window.end - window.begin - 1;
      const auto on_row = [&](size_t i, const std::vector<float>& row) -> Status {
        const size_t target = window.begin + i + 1;
        if (target < window.first) return {};
        const auto id = static_cast<size_t>(ids[target]);
        if (id >= row.size()) return invalid("token {} is past the model's {}", id, row.size());
        const double nll = log_sum_exp(row) - row[id];
        if (std::isnan(nll)) return internal("the logits before token {} hold NaN", target);
        score.add(nll);
        bar.show("perplexity", static_cast<double>(target) / static_cast<double>(ids.size()));
        return {};
      };
      TENON_OK(for_each_row(engine, {at, at + static_cast<std::ptrdiff_t>(len)}, on_row));
    }
    return score;
  }

  void report(const engine::Model& model, size_t tokens, int stride, const Score& score,
              double seconds) const {
    if (json_) {
      const Json line = {{"perplexity", std::exp(score.mean())},
                         {"nll", score.mean()},
                         {"nll_standard_error", score.standard_error()},
                         {"tokens", tokens},
                         {"scored", score.tokens},
                         {"context", model.context_len},
                         {"stride", stride},
                         {"seconds", seconds},
                         {"model", model.name},
                         {"kernels", model.kernels},
                         {"dtype", model.dtype},
                         {"device", model.device}};
      std::printf("%s\n", dump_json(line).c_str());
      return;
    }
    std::printf("%s; kernels %s, dtype %s, device %s\n", model.name.c_str(), model.kernels.c_str(),
                model.dtype.c_str(), model.device.c_str());
    std::printf("perplexity %.4f; %.5f +- %.5f nats a token\n", std::exp(score.mean()),
                score.mean(), score.standard_error());
    std::printf("%zu of %zu tokens, windows of %d, stride %d; %.1f s\n", score.tokens, tokens,
                model.context_len, stride, seconds);
  }

  ModelFlags model_;
  std::string file_;
  int stride_ = 0;
  bool json_ = false;
};

}  // namespace

TENON_COMMAND(perplexity, "how well a model predicts a text", PerplexityVerb);

}  // namespace tenon::cli
