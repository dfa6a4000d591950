// The named tensors of a checkpoint (declared in checkpoint.h).
#include <algorithm>

#include "base/check.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/quantization.h"

namespace tenon::checkpoint {

namespace {

std::string described(const WeightView& view) {
  return fmt::format("{} {}", format_name(view.format), shape_text(view.shape));
}

bool is_float(Format format) {
  return format == Format::f32 || format == Format::f16 || format == Format::bf16 ||
         format == Format::f64;
}

// A tensor that is multiplied with activations as it is: floats or GGUF blocks.
bool is_matrix_format(Format format) {
  return is_float(format) || format_block(format).elements > 1;
}

}  // namespace

Weights::Weights(std::vector<WeightView> tensors, std::string source, TensorFiles files)
    : source_(std::move(source)), files_(std::move(files)) {
  // One file holds all: whatever is wrong is wrong there.
  const auto elsewhere = [&](const auto& entry) { return entry.second != files_.begin()->second; };
  if (!files_.empty() && std::none_of(files_.begin(), files_.end(), elsewhere))
    source_ = files_.begin()->second;
  slots_.reserve(tensors.size());
  for (WeightView& view : tensors) {
    std::string name = view.name;
    slots_.emplace_back(std::move(name), Slot{std::move(view), false});
  }
  sort();
  for (size_t i = 1; i < slots_.size(); ++i)
    CHECK(slots_[i - 1].first != slots_[i].first, "the reader let {} through twice",
          slots_[i].first);
}

void Weights::sort() {
  std::sort(slots_.begin(), slots_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
}

Status Weights::rename_prefix(std::string_view from, std::string_view to) {
  for (auto& [name, entry] : slots_)
    if (name.starts_with(from)) name = std::string(to) + name.substr(from.size());
  sort();
  for (size_t i = 1; i < slots_.size(); ++i)
    if (slots_[i - 1].first == slots_[i].first)
      return corrupt("{}: tensors {} and {} are one and the same", source_,
                     shown(slots_[i - 1].second.view.name), shown(slots_[i].second.view.name));
  return {};
}

const Weights::Slot* Weights::slot(std::string_view name) const {
  const auto it =
      std::lower_bound(slots_.begin(), slots_.end(), name,
                       [](const auto& entry, std::string_view n) { return entry.first < n; });
  return it != slots_.end() && it->first == name ? &it->second : nullptr;
}

Weights::Slot* Weights::slot(std::string_view name) {
  return const_cast<Slot*>(std::as_const(*this).slot(name));
}

const std::string& Weights::file_of(std::string_view name) const {
  const Slot* found = slot(name);
  const auto file = found ? files_.find(found->view.name) : files_.end();
  return file == files_.end() ? source_ : file->second;
}

bool Weights::has(std::string_view name) const { return slot(name) != nullptr; }

std::optional<WeightView> Weights::find(std::string_view name) const {
  const Slot* found = slot(name);
  return found ? std::optional(found->view) : std::nullopt;
}

std::vector<std::string> Weights::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : slots_)
    if (!entry.taken) out.push_back(name);
  return out;
}

Result<WeightView> Weights::take(std::string_view name, std::vector<int64_t> shape) {
  Slot* found = slot(name);
  if (!found) return not_found("{}: tensor {} is missing", source_, shown(name));
  if (found->taken)
    return corrupt("{}: tensor {} is used twice or was dropped", file_of(name), shown(name));
  if (!shape.empty() && found->view.shape != shape)
    return corrupt("{}: tensor {} has shape {}, expected {}", file_of(name), shown(name),
                   shape_text(found->view.shape), shape_text(shape));
  found->taken = true;
  return found->view;
}

Status Weights::take_quantized(std::string_view path, const std::vector<int64_t>& lead, int64_t in,
                               LinearSource& linear) {
  const auto name = [&](const char* part) { return fmt::format("{}.{}", path, part); };
  const auto shape = [&](int64_t last) {
    std::vector<int64_t> all = lead;
    all.push_back(last);
    return all;
  };
  // The config speaks of modules by the names that the file gives them.
  std::string_view stored = slot(name("scales"))->view.name;
  stored.remove_suffix(std::min(stored.size(), std::string_view(".scales").size()));
  TENON_TRY(const Scheme scheme, scheme_of(quantization_, stored, source_));
  if (!scheme.quantized)
    return corrupt("{}: tensor {} is there, but the config says that {} is not quantized",
                   file_of(name("scales")), name("scales"), shown(path));
  if (in % scheme.group_size != 0 || in * scheme.bits % 32 != 0)
    return corrupt("{}: {}: rows of {} are not whole groups of {}", source_, shown(path), in,
                   scheme.group_size);
  if (has(name("global_scale")))
    return unsupported("{}: tensor {}: a scale over a whole tensor is not supported", source_,
                       name("global_scale"));
  linear.mode = scheme.mode;
  linear.bits = scheme.bits;
  linear.group_size = scheme.group_size;
  TENON_TRY(linear.weight, take(name("weight"), shape(in * scheme.bits / 32)));
  if (linear.weight.format != Format::u32)
    return corrupt("{}: tensor {} is {}, expected packed u32", file_of(name("weight")),
                   name("weight"), described(linear.weight));
  TENON_TRY(WeightView scales, take(name("scales"), shape(in / scheme.group_size)));
  const bool affine = scheme.mode == QuantMode::affine;
  if (affine ? !is_float(scales.format) : scales.format != Format::u8)
    return corrupt("{}: tensor {} is {}, expected {} for {}", file_of(name("scales")),
                   name("scales"), described(scales), affine ? "floats" : "u8",
                   quant_mode_name(scheme.mode));
  linear.scales.push_back(std::move(scales));
  if (!affine) return {};
  TENON_TRY(WeightView biases, take(name("biases"), shape(in / scheme.group_size)));
  if (biases.format != linear.scales[0].format)
    return corrupt("{}: tensors {} and {} differ in format", file_of(name("scales")),
                   name("scales"), name("biases"));
  linear.biases.push_back(std::move(biases));
  return {};
}

Result<LinearSource> Weights::take_linear_shaped(std::string_view path,
                                                 const std::vector<int64_t>& lead, int64_t in) {
  const auto name = [&](const char* part) { return fmt::format("{}.{}", path, part); };
  LinearSource linear;
  if (has(name("scales"))) {
    TENON_OK(take_quantized(path, lead, in, linear));
    return linear;
  }
  // Packed integers without scales: say what is missing, not that the shape is odd.
  const Slot* weight = slot(name("weight"));
  if (weight && !is_matrix_format(weight->view.format))
    return corrupt("{}: tensor {} is {}, but tensor {} is missing", file_of(name("weight")),
                   name("weight"), described(weight->view), name("scales"));
  std::vector<int64_t> shape = lead;
  shape.push_back(in);
  TENON_TRY(linear.weight, take(name("weight"), std::move(shape)));
  return linear;
}

Result<LinearSource> Weights::take_linear(std::string_view path, int64_t out, int64_t in,
                                          bool bias) {
  TENON_TRY(LinearSource linear, take_linear_shaped(path, {out}, in));
  if (bias) {
    TENON_TRY(WeightView view, take(fmt::format("{}.bias", path), {out}));
    linear.bias.push_back(std::move(view));
  }
  return linear;
}

Result<std::vector<LinearSource>> Weights::take_experts(std::string_view path, int64_t num,
                                                        int64_t out, int64_t in) {
  TENON_TRY(const LinearSource all, take_linear_shaped(path, {num, out}, in));
  const auto one_of = [](const WeightView& view, int64_t i) {
    WeightView one = rows_of(view, i, i + 1);
    one.shape.erase(one.shape.begin());
    return one;
  };
  std::vector<LinearSource> experts(num, all);
  for (int64_t i = 0; i < num; ++i) {
    experts[i].weight = one_of(all.weight, i);
    for (auto* views : {&experts[i].scales, &experts[i].biases})
      for (WeightView& view : *views) view = one_of(view, i);
  }
  return experts;
}

void Weights::drop(std::string_view part) {
  for (auto& [name, entry] : slots_)
    if (name.find(part) != std::string::npos) entry.taken = true;
}

void Weights::spare(std::string_view part) {
  for (auto& [name, entry] : slots_)
    if (name.find(part) != std::string::npos) entry.spared = true;
}

Status Weights::finish() const {
  constexpr size_t kListed = 10;
  std::vector<std::string> left;
  for (const auto& [name, entry] : slots_)
    if (!entry.taken && !entry.spared) left.push_back(name);
  if (left.empty()) return {};
  std::string list;
  for (size_t i = 0; i < left.size() && i < kListed; ++i)
    list += fmt::format("{}{}", i ? ", " : "", shown(left[i]));
  if (left.size() > kListed) list += fmt::format(" and {} more", left.size() - kListed);
  return corrupt("{}: this model has no use for {} of the tensors: {}", file_of(left[0]),
                 left.size(), list);
}

}  // namespace tenon::checkpoint
