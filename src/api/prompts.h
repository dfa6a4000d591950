// What a request wants continued, as token ids. Thread: a worker; tokenizing 10 MB takes seconds.
//
// Chat: messages go through the checkpoint's template; text inside them never becomes a control
// token. A message is {role, content, name, tool_calls, tool_call_id, reasoning_content}. Roles:
// system, developer (read as system), user, assistant, tool. Content: a string; a list of
// {"type":"text"} parts, joined without a separator; null or absent beside tool_calls, which the
// template sees as it was sent. continue_final_message: the last message must be from the assistant
// and its turn stays open.
//
// Completions: the prompt is raw. Spellings of control tokens in it are control tokens, and the
// tokenizer adds what it would add (a beginning token), as in llama.cpp and vLLM. Lists of ids are
// taken as they are.
#pragma once
#include <vector>

#include "api/api.h"
#include "api/fields.h"

namespace tenon::api {

using Ids = std::vector<int32_t>;

// Errors name messages[i].field.
Result<Json> read_messages(const Json& body, std::vector<std::string>* ignored);
// Errors: as above, and the template's own as invalid.
Result<Ids> chat_prompt(const Json& body, const engine::Model& model, GenerateOptions* options);

// A string, a list of strings, a list of ids or a list of lists of ids. Errors name `prompt`.
Result<std::vector<Ids>> completion_prompts(const Json& body, const engine::Model& model,
                                            const Limits& limits);

}  // namespace tenon::api
