// tenon verify --against mlx: what the chosen kernels, dtype and caches cost in accuracy. Both run
// here over the same text: the model as the flags say, and MLX's stock ops in float32.
#include <cstdio>

#include "cli/agreement.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/sample_text.h"
#include "cli/terminal.h"
#include "cli/text_rows.h"

namespace tenon::cli {

namespace {

class VerifyVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    model_.options().context_len = 512;
    model_.declare(flags);
    flags.choice("against", &against_, {"mlx"}, "the reference: MLX's stock ops in float32, CPU");
    flags.text("file", &file_, "the text (without it: a page of prose that is built in)", "TEXT");
    flags.integer("positions", &positions_, 1, 1 << 24, "tokens of the text to compare", "TOKENS");
    flags.toggle("json", &json_, "one JSON object");
  }

  Status check() override {
    if (against_.empty()) return invalid("--against: missing; --against mlx is what there is");
    return {};
  }

  Result<int> run() override {
    std::string text(kSampleText);
    if (!file_.empty()) {
      TENON_TRY(text, read_text_file(file_));
    }
    model_.options().max_batch = 1;
    TENON_TRY(auto measured, model_.load());
    engine::EngineOptions options = model_.options();
    options.kernels = "mlx";
    options.device = "cpu";
    options.dtype = "float32";
    options.kv = "f32";
    TENON_TRY(auto reference, engine::load_engine(options));
    TENON_TRY(auto model, measured->model(""));
    TENON_TRY(std::vector<int32_t> ids, encode_text(*model, text));
    if (ids.empty()) return invalid("--file {}: no text", file_);
    if (ids.size() > static_cast<size_t>(positions_)) ids.resize(static_cast<size_t>(positions_));
    TENON_TRY(const Agreement agreement, compare(*reference, *measured, ids, model->context_len));
    report(*model, agreement);
    return 0;
  }

 private:
  // Window by window, so that no more than one window's logits are held.
  static Result<Agreement> compare(engine::Engine& reference, engine::Engine& measured,
                                   const std::vector<int32_t>& ids, int context) {
    ProgressBar bar;
    Agreement agreement;
    for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(context)) {
      const size_t len = std::min(ids.size() - begin, static_cast<size_t>(context));
      const auto at = ids.begin() + static_cast<std::ptrdiff_t>(begin);
      const std::vector<int32_t> window(at, at + static_cast<std::ptrdiff_t>(len));
      std::vector<std::vector<float>> rows(len);
      const auto keep = [&](size_t i, std::vector<float> row) -> Status {
        rows[i] = std::move(row);
        bar.show("reference", static_cast<double>(begin + i) / static_cast<double>(ids.size()));
        return {};
      };
      TENON_OK(for_each_row(reference, window, keep));
      const auto match = [&](size_t i, std::vector<float> row) {
        return agreement.add(begin + i, rows[i], row);
      };
      TENON_OK(for_each_row(measured, window, match));
    }
    return agreement;
  }

  void report(const engine::Model& model, const Agreement& a) const {
    const double share = static_cast<double>(a.same_top()) / static_cast<double>(a.positions());
    if (json_) {
      const Json line = {{"positions", a.positions()},
                         {"mean_kl", a.mean_kl()},
                         {"p99_kl", a.quantile_kl(0.99)},
                         {"max_kl", a.max_kl()},
                         {"top1_agreement", share},
                         {"top1_differ", a.positions() - a.same_top()},
                         {"largest_logit_difference", a.largest_difference()},
                         {"against", "mlx float32"},
                         {"model", model.name},
                         {"kernels", model.kernels},
                         {"dtype", model.dtype},
                         {"device", model.device}};
      std::printf("%s\n", dump_json(line).c_str());
      return;
    }
    std::printf("%s; kernels %s, dtype %s, device %s; against stock MLX in float32\n",
                model.name.c_str(), model.kernels.c_str(), model.dtype.c_str(),
                model.device.c_str());
    std::printf("KL divergence: mean %.3g, 99th percentile %.3g, largest %.3g nats\n", a.mean_kl(),
                a.quantile_kl(0.99), a.max_kl());
    std::printf("likeliest token: the same at %zu of %zu positions (%.2f %%)\n", a.same_top(),
                a.positions(), share * 100);
    std::printf("largest difference of two logits: %.3g\n", a.largest_difference());
  }

  ModelFlags model_;
  std::string against_, file_;
  int positions_ = 2000;
  bool json_ = false;
};

}  // namespace

TENON_COMMAND(verify, "what our kernels cost in accuracy, on this machine", VerifyVerb);

}  // namespace tenon::cli
