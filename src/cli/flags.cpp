#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "cli/suggest.h"

namespace tenon::cli {

namespace {

template <class T>
std::optional<T> whole_number(std::string_view text) {
  T value{};
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::string env_name(const std::string& flag) {
  std::string name = "TENON_" + flag;
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::optional<int64_t> to_int(std::string_view text) { return whole_number<int64_t>(text); }
std::optional<uint64_t> to_uint(std::string_view text) { return whole_number<uint64_t>(text); }

std::optional<double> to_double(std::string_view text) {
  std::optional<double> value = whole_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::vector<int>> to_int_list(std::string_view text, int min, int max) {
  std::vector<int> list;
  for (size_t start = 0; start <= text.size();) {
    size_t comma = std::min(text.find(',', start), text.size());
    std::optional<int64_t> item = to_int(text.substr(start, comma - start));
    if (!item || *item < min || *item > max) return std::nullopt;
    list.push_back(static_cast<int>(*item));
    start = comma + 1;
  }
  return list;
}

struct Flags::Impl {
  struct Flag {
    std::string name;
    Setter set;
    Shape shape;
    CLI::Option* option;
  };
  CLI::App app;
  std::string verb;
  std::string config_file;
  std::vector<Flag> flags;
  std::vector<std::string> elsewhere;
  std::vector<CLI::ConfigItem> config;  // of config_file, this verb's and the common ones

  Status read_config(const std::string& path);
  Status keep_config_item(const std::string& path, CLI::ConfigItem item);
  Status apply(const Flag& flag);
  Status apply_values(const Flag& flag, const std::string& source,
                      const std::vector<std::string>& values);
  std::vector<std::string> spellings() const;
  Error extras_error() const;
};

Flags::Flags(std::string verb, std::string summary) : impl_(std::make_unique<Impl>()) {
  impl_->verb = verb;
  impl_->app.name("tenon " + verb);
  impl_->app.description(std::move(summary));
  impl_->app.allow_extras();  // we report them ourselves, with a suggestion
  text("config", &impl_->config_file, "read flags from this TOML file", "FILE");
}
Flags::~Flags() = default;

void Flags::add(const std::string& name, const std::string& metavar, const std::string& help,
                Setter set, Shape shape) {
  std::string spelled = shape.positional ? name : "--" + name;
  CLI::Option* option;
  if (shape.is_switch) {
    option = impl_->app.add_flag(spelled, help);
  } else {
    option = impl_->app.add_option(spelled, help)->type_name(metavar);
    // One value per occurrence; CLI11 would otherwise take "[a,b]" apart and eat following words.
    option->expected(1)->allow_extra_args(false);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  impl_->flags.push_back({name, std::move(set), shape, option});
}

void Flags::text(const std::string& name, std::string* target, const std::string& help,
                 const std::string& metavar) {
  auto set = [target](const std::string& value) {
    *target = value;
    return std::string(value.empty() ? "must not be empty" : "");
  };
  add(name, metavar, target->empty() ? help : help + " [" + *target + "]", set, {});
}

void Flags::choice(const std::string& name, std::string* target, std::vector<std::string> allowed,
                   const std::string& help) {
  std::string list;
  for (const std::string& item : allowed) list += (list.empty() ? "" : ", ") + item;
  auto set = [target, allowed, list](const std::string& value) {
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      return "must be one of " + list + did_you_mean(value, allowed);
    }
    *target = value;
    return std::string();
  };
  add(name, "NAME", help + ": " + list + (target->empty() ? "" : " [" + *target + "]"), set, {});
}

void Flags::integer(const std::string& name, int64_t* target, int64_t min, int64_t max,
                    const std::string& help, const std::string& metavar) {
  auto set = [=](const std::string& value) -> std::string {
    std::optional<int64_t> number = to_int(value);
    if (!number) return "must be a whole number";
    if (*number < min || *number > max) return fmt::format("must be from {} to {}", min, max);
    *target = *number;
    return "";
  };
  add(name, metavar, fmt::format("{} [{}]", help, *target), set, {});
}

void Flags::integer(const std::string& name, int* target, int min, int max, const std::string& help,
                    const std::string& metavar) {
  auto wide = std::make_shared<int64_t>(*target);
  integer(name, wide.get(), min, max, help, metavar);
  Setter& set = impl_->flags.back().set;
  set = [set, wide, target](const std::string& value) {
    std::string wrong = set(value);
    *target = static_cast<int>(*wide);
    return wrong;
  };
}

void Flags::seed(const std::string& name, std::optional<uint64_t>* target,
                 const std::string& help) {
  auto set = [target](const std::string& value) -> std::string {
    *target = to_uint(value);
    return *target ? "" : "must be a whole number from 0 to 18446744073709551615";
  };
  add(name, "N", help, set, {});
}

void Flags::toggle(const std::string& name, bool* target, const std::string& help) {
  auto set = [target](const std::string& value) -> std::string {
    bool yes = value == "true" || value == "1";
    if (!yes && value != "false" && value != "0") return "must be true or false";
    *target = yes;
    return "";
  };
  add(name, "", help, set, {.is_switch = true});
}

void Flags::texts(const std::string& name, std::vector<std::string>* target,
                  const std::string& help, const std::string& metavar) {
  auto set = [target](const std::string& value) {
    target->push_back(value);
    return std::string(value.empty() ? "must not be empty" : "");
  };
  add(name, metavar, help + " (may be repeated)", set, {.repeat = true});
}

void Flags::int_list(const std::string& name, std::vector<int>* target, int min, int max,
                     const std::string& help) {
  auto set = [=](const std::string& value) -> std::string {
    std::optional<std::vector<int>> list = to_int_list(value, min, max);
    if (!list) return fmt::format("must be whole numbers from {} to {}, comma separated", min, max);
    *target = std::move(*list);
    return "";
  };
  std::string now = fmt::format("{}", fmt::join(*target, ","));
  add(name, "N,N,...", now.empty() ? help : help + " [" + now + "]", set, {});
}

void Flags::positional(const std::string& name, std::optional<std::string>* target,
                       const std::string& help) {
  auto set = [target](const std::string& value) {
    *target = value;
    return std::string();
  };
  add(name, "", help, set, {.positional = true});
}

void Flags::known_elsewhere(std::vector<std::string> names) { impl_->elsewhere = std::move(names); }

std::vector<std::string> Flags::Impl::spellings() const {
  std::vector<std::string> list{"--help"};
  for (const Flag& flag : flags) {
    if (!flag.shape.positional) list.push_back("--" + flag.name);
  }
  return list;
}

Error Flags::Impl::extras_error() const {
  std::string word = app.remaining().front();
  if (word.size() < 2 || word[0] != '-') {
    return invalid("unexpected argument '{}' (tenon {} --help lists what it takes)", word, verb);
  }
  word = word.substr(0, word.find('='));
  return invalid("unknown flag {}{} (tenon {} --help lists them)", word,
                 did_you_mean(word, spellings()), verb);
}

Status Flags::Impl::keep_config_item(const std::string& path, CLI::ConfigItem item) {
  if (item.name == "++" || item.name == "--") return {};  // borders of a [section]
  bool of_verb = item.parents.size() == 1 && item.parents[0] == verb;
  if (!item.parents.empty() && !of_verb) return {};  // another verb's section
  std::replace(item.name.begin(), item.name.end(), '_', '-');
  std::vector<std::string> mine;
  for (const Flag& flag : flags) {
    if (!flag.shape.positional && flag.name != "config") mine.push_back(flag.name);
  }
  if (std::find(mine.begin(), mine.end(), item.name) != mine.end()) {
    // A [verb] line wins over a common one, whichever comes first.
    config.insert(of_verb ? config.begin() : config.end(), std::move(item));
    return {};
  }
  bool others = std::find(elsewhere.begin(), elsewhere.end(), item.name) != elsewhere.end();
  if (!of_verb && others) return {};
  return invalid("{}: unknown key '{}'{}", path, item.name, did_you_mean(item.name, mine));
}

Status Flags::Impl::read_config(const std::string& path) {
  std::ifstream file(path);
  if (!file) return invalid("--config: cannot read {}", path);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& error) {
    return invalid("--config: {}: {}", path, one_line(error.what()));
  }
  for (CLI::ConfigItem& item : items) TENON_OK(keep_config_item(path, std::move(item)));
  return {};
}

Status Flags::Impl::apply_values(const Flag& flag, const std::string& source,
                                 const std::vector<std::string>& values) {
  if (values.size() > 1 && !flag.shape.repeat) {
    return invalid("{}: given {} times, takes one value", source, values.size());
  }
  for (const std::string& value : values) {
    if (std::string wrong = flag.set(value); !wrong.empty()) {
      return invalid("{}: '{}' {}", source, value, wrong);
    }
  }
  return {};
}

Status Flags::Impl::apply(const Flag& flag) {
  std::string shown = flag.shape.positional ? flag.name : "--" + flag.name;
  if (flag.option->count() > 0) {
    if (flag.shape.is_switch) return apply_values(flag, shown, {flag.option->results().back()});
    return apply_values(flag, shown, flag.option->results());
  }
  if (flag.shape.positional) return {};
  std::string variable = env_name(flag.name);
  const char* value = std::getenv(variable.c_str());
  if (value && *value) return apply_values(flag, variable, {value});
  for (const CLI::ConfigItem& item : config) {
    if (item.name != flag.name) continue;
    std::string source = config_file + ": " + flag.name;
    // A list for a flag that takes "1,2,3" is joined; a repeatable flag takes it item by item.
    if (flag.shape.repeat) return apply_values(flag, source, item.inputs);
    return apply_values(flag, source, {fmt::format("{}", fmt::join(item.inputs, ","))});
  }
  return {};
}

Result<Flags::Outcome> Flags::parse(const std::vector<std::string>& args) {
  try {
    impl_->app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForHelp&) {
    return Outcome::help;
  } catch (const CLI::ParseError& error) {
    return invalid("{}", one_line(error.what()));
  }
  if (!impl_->app.remaining().empty()) return impl_->extras_error();
  TENON_OK(impl_->apply(impl_->flags.front()));  // --config
  if (!impl_->config_file.empty()) TENON_OK(impl_->read_config(impl_->config_file));
  for (const Impl::Flag& flag : impl_->flags) TENON_OK(impl_->apply(flag));
  return Outcome::run;
}

std::string Flags::help_text() const {
  return impl_->app.help() +
         "\nEvery flag can also be set as TENON_FLAG_NAME in the environment, or in --config "
         "FILE.\n";
}

std::vector<std::string> Flags::names() const {
  std::vector<std::string> list;
  for (const Impl::Flag& flag : impl_->flags) list.push_back(flag.name);
  return list;
}

}  // namespace tenon::cli
