#include "api/prompts.h"

#include <algorithm>

#include "api/body.h"

namespace tenon::api {
namespace {

Result<std::string> join_parts(const Json& parts, const std::string& where) {
  if (parts.empty()) return invalid("{} must not be an empty list", where).at(where);
  std::string text;
  for (size_t j = 0; j < parts.size(); ++j) {
    const std::string part = fmt::format("{}[{}]", where, j);
    if (!parts[j].is_object()) return invalid("{} must be an object", part).at(part);
    const Json* type = field(parts[j], "type");
    if (!type || !type->is_string())
      return invalid("{}.type must be a string", part).at(part + ".type");
    if (*type != "text")
      return unsupported("{}.type is '{}'; this server takes text parts only", part,
                         excerpt(type->get_ref<const std::string&>()))
          .at(part + ".type");
    TENON_OK(only_keys(parts[j], {"type", "text"}, part));
    const Json* piece = field(parts[j], "text");
    if (!piece || !piece->is_string())
      return invalid("{}.text must be a string", part).at(part + ".text");
    text += piece->get_ref<const std::string&>();
  }
  return text;
}

Status read_content(const Json& message, bool may_miss, const std::string& where, Json* out) {
  const Json* content = field(message, "content");
  const std::string name = where + ".content";
  if (!content) {
    if (!may_miss) return invalid("{} must be a string or a list of text parts", name).at(name);
    if (message.contains("content")) (*out)["content"] = nullptr;
    return {};
  }
  if (content->is_string()) {
    (*out)["content"] = *content;
    return {};
  }
  if (!content->is_array())
    return invalid("{} must be a string or a list of text parts", name).at(name);
  TENON_TRY((*out)["content"], join_parts(*content, name));
  return {};
}

// "" when the role is none of those known.
std::string template_role(const Json* role) {
  if (!role || !role->is_string()) return "";
  for (const char* known : {"system", "user", "assistant", "tool"})
    if (*role == known) return known;
  return *role == "developer" ? "system" : "";
}

Status read_tool_calls(const Json& calls, const std::string& where) {
  const std::string name = where + ".tool_calls";
  if (!calls.is_array()) return invalid("{} must be a list", name).at(name);
  for (size_t j = 0; j < calls.size(); ++j) {
    const std::string call = fmt::format("{}[{}]", name, j);
    const Json* function = calls[j].is_object() ? field(calls[j], "function") : nullptr;
    const Json* called = function && function->is_object() ? field(*function, "name") : nullptr;
    if (!called || !called->is_string())
      return invalid("{} must be an object with function.name", call).at(call);
  }
  return {};
}

// Once, however many messages have it: the names travel in a header.
void note(std::vector<std::string>* names, std::string name) {
  if (std::find(names->begin(), names->end(), name) == names->end())
    names->push_back(std::move(name));
}

Result<Json> read_message(const Json& message, const std::string& where,
                          std::vector<std::string>* ignored) {
  if (!message.is_object()) return invalid("{} must be an object", where).at(where);
  TENON_OK(only_keys(message,
                     {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content",
                      "refusal", "annotations"},
                     where));
  Json out;
  const std::string role = template_role(field(message, "role"));
  if (role.empty())
    return invalid("{}.role must be system, developer, user, assistant or tool", where)
        .at(where + ".role");
  out["role"] = role;
  const Json* calls = field(message, "tool_calls");
  if (calls && role != "assistant")
    return invalid("{}.tool_calls is for the assistant", where).at(where + ".tool_calls");
  if (calls) TENON_OK(read_tool_calls(*calls, where));
  TENON_OK(read_content(message, calls && !calls->empty(), where, &out));
  if (calls) out["tool_calls"] = *calls;
  for (const char* key : {"name", "tool_call_id", "reasoning_content"})
    if (const Json* value = field(message, key)) {
      TENON_TRY(out[key], as_string(*value, where + "." + key));
    }
  // What OpenAI's client sends back with a reply it got.
  for (const char* key : {"refusal", "annotations"})
    if (field(message, key)) note(ignored, std::string("messages.") + key);
  return out;
}

// Refuses text that cannot fit the window before it costs seconds to tokenize.
Status check_size(size_t bytes, const engine::Model& model, const char* name) {
  const int64_t most = model.prompt_bytes_max;
  if (most <= 0 || bytes <= static_cast<size_t>(most)) return {};
  const size_t bytes_per_token = static_cast<size_t>(most) / static_cast<size_t>(model.context_len);
  return std::move(invalid("{} has {} bytes, at least {} tokens; the context window is {}", name,
                           bytes, bytes / bytes_per_token, model.context_len)
                       .at(name)
                       .because("context_length_exceeded"));
}

size_t content_bytes(const Json& messages) {
  size_t bytes = 0;
  for (const Json& message : messages)
    if (const Json* content = field(message, "content"); content && content->is_string())
      bytes += content->get_ref<const std::string&>().size();
  return bytes;
}

}  // namespace

Result<Json> read_messages(const Json& body, std::vector<std::string>* ignored) {
  const Json* messages = field(body, "messages");
  if (!messages || !messages->is_array() || messages->empty())
    return invalid("messages must be a list of at least one message").at("messages");
  Json out = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    TENON_TRY(Json message, read_message((*messages)[i], fmt::format("messages[{}]", i), ignored));
    out.push_back(std::move(message));
  }
  return out;
}

Result<Ids> chat_prompt(const Json& body, const engine::Model& model, GenerateOptions* options) {
  if (!model.tokenizer || !model.chat_template)
    return unsupported("the model {} has no chat template; use /v1/completions", model.name)
        .at("messages");
  Json context = options->template_kwargs;
  TENON_TRY(Json messages, read_messages(body, &options->ignored));
  TENON_OK(check_size(content_bytes(messages), model, "messages"));
  const Json& last = messages.back();
  const bool go_on = options->continue_final_message;
  if (go_on &&
      (last["role"] != "assistant" || !last.contains("content") || !last["content"].is_string()))
    return invalid("continue_final_message needs a last message of the assistant with text")
        .at("continue_final_message");
  context["messages"] = std::move(messages);
  context["add_generation_prompt"] = options->add_generation_prompt.value_or(!go_on);
  if (go_on) context["continue_final_message"] = true;
  context["bos_token"] = model.bos_token;
  context["eos_token"] = model.eos_token;
  auto prompt = text::encode_chat(*model.tokenizer, *model.chat_template, context);
  if (!prompt.ok()) {
    Error error = std::move(prompt).error();
    if (error.code == Code::too_large)
      error.code = Code::invalid;  // the template's budget, not the body's
    if (error.field.empty()) error.field = "messages";
    if (error.reason.empty() && error.code == Code::invalid) error.reason = "chat_template_error";
    return error;
  }
  if (prompt->ids.empty()) return invalid("the chat template made an empty prompt").at("messages");
  return std::move(prompt->ids);
}

namespace {

Result<Ids> text_prompt(const Json& value, const engine::Model& model) {
  const std::string& text = value.get_ref<const std::string&>();
  if (text.empty()) return invalid("prompt must not be an empty string").at("prompt");
  TENON_OK(check_size(text.size(), model, "prompt"));
  auto ids = model.tokenizer->encode_with_specials(text);
  if (!ids.ok()) return std::move(ids.error().at("prompt"));
  if (ids->empty()) return invalid("prompt has no tokens").at("prompt");
  return ids;
}

Result<Ids> id_prompt(const Json& value, const engine::Model& model) {
  TENON_TRY(Ids ids, as_ids(value, "prompt", model.vocab_size));
  if (ids.empty()) return invalid("prompt must not be an empty list").at("prompt");
  return ids;
}

}  // namespace

Result<std::vector<Ids>> completion_prompts(const Json& body, const engine::Model& model,
                                            const Limits& limits) {
  if (!model.tokenizer)
    return unsupported("the model {} has no tokenizer, so it cannot answer in text", model.name)
        .at("model");
  const Json* prompt = field(body, "prompt");
  if (!prompt || !(prompt->is_string() || prompt->is_array()) || prompt->empty())
    return invalid("prompt must be text or token ids, or a list of either, and not empty")
        .at("prompt");
  std::vector<Ids> prompts;
  if (prompt->is_string()) {
    TENON_TRY(Ids ids, text_prompt(*prompt, model));
    prompts.push_back(std::move(ids));
    return prompts;
  }
  if (prompt->front().is_number()) {
    TENON_TRY(Ids ids, id_prompt(*prompt, model));
    prompts.push_back(std::move(ids));
    return prompts;
  }
  if (prompt->size() > static_cast<size_t>(limits.prompts_max))
    return invalid("prompt lists {} prompts, at most {} are taken", prompt->size(),
                   limits.prompts_max)
        .at("prompt");
  const bool texts = prompt->front().is_string();
  for (const Json& item : *prompt) {
    if (texts ? !item.is_string() : !item.is_array())
      return invalid("prompt must be all strings or all lists of token ids").at("prompt");
    TENON_TRY(Ids ids, texts ? text_prompt(item, model) : id_prompt(item, model));
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

}  // namespace tenon::api
