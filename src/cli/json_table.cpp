#include "cli/json_table.h"

#include <algorithm>

namespace tenon::cli {

namespace {

// 123456789 -> "123,456,789": bytes and parameters are read by eye here; --json has them plain.
std::string grouped(const Json& number) {
  std::string text = number.dump();
  if (!number.is_number_integer()) return text;
  for (size_t i = text.size(); i > 3 && text[i - 4] != '-'; i -= 3) text.insert(i - 3, ",");
  return text;
}

std::string scalar(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number()) return grouped(value);
  if (value.is_string()) return value.get<std::string>();
  return dump_json(value);
}

bool is_short_list(const Json& value) {
  size_t total = 0;
  for (const Json& item : value) {
    if (item.is_structured() || (item.is_string() && scalar(item).find(' ') != std::string::npos)) {
      return false;
    }
    total += scalar(item).size() + 2;
  }
  return total <= 72;
}

std::string list(const Json& value, const std::string& pad, int width) {
  std::string text;
  if (is_short_list(value)) {
    for (const Json& item : value) text += (text.empty() ? "" : ", ") + scalar(item);
    return text + "\n";
  }
  for (const Json& item : value) {
    text += (text.empty() ? "" : pad + std::string(width, ' ')) + scalar(item) + "\n";
  }
  return text;
}

}  // namespace

std::string json_table(const Json& object, int indent) {
  if (!object.is_object()) return scalar(object) + "\n";
  size_t width = 0;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_object()) width = std::max(width, name.size() + 2);
  }
  std::string pad(static_cast<size_t>(indent), ' '), text;
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) {
      text += pad + name + "\n" + json_table(value, indent + 2);
      continue;
    }
    std::string head = name;
    head.resize(width, ' ');
    text += pad + head;
    text += value.is_array() ? list(value, pad, static_cast<int>(width)) : scalar(value) + "\n";
  }
  return text;
}

}  // namespace tenon::cli
