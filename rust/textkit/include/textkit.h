/* Tenon's text kit: tokenizer and chat template as a C library.
 *
 * Ownership: what a *_new function wrote to `out` is the caller's until the matching *_free. A
 *   TkText or TkIds written to `out` or `error` is the caller's until tk_text_free or tk_ids_free.
 *   Inputs are borrowed for the call; one of length 0 may be null, and none needs a NUL.
 * Errors: functions that return int give a TkStatus. On any but TK_OK nothing is written to `out`
 *   and `*error` holds one line of text; on TK_OK `*error` is left alone. No panic crosses this
 *   border: one becomes TK_INTERNAL, and the handle stays usable.
 * Thread: handles are immutable; any number of threads may use one at once. Freeing must come last.
 * Units: text is UTF-8 bytes, ids are vocabulary indices.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum TkStatus {
  TK_OK = 0,
  TK_INVALID = 1,     /* the input is wrong */
  TK_CORRUPT = 2,     /* a file contradicts itself */
  TK_UNSUPPORTED = 3, /* understood, but not built in */
  TK_TOO_LARGE = 4,   /* past a limit */
  TK_INTERNAL = 5     /* a bug here or below */
} TkStatus;

typedef struct TkText {
  uint8_t* data;
  size_t len;
} TkText;
void tk_text_free(TkText text);

typedef struct TkIds {
  uint32_t* data;
  size_t len;
} TkIds;
void tk_ids_free(TkIds ids);

/* Tokenizer ------------------------------------------------------------------------------------ */

typedef struct TkTokenizer TkTokenizer;

/* `json`: the bytes of a tokenizer.json. TK_CORRUPT, or TK_UNSUPPORTED with the part's name. */
int tk_tokenizer_new(const char* json, size_t len, TkTokenizer** out, TkText* error);
void tk_tokenizer_free(TkTokenizer* tokenizer);

/* One more than the highest id. */
size_t tk_vocab_size(const TkTokenizer* tokenizer);

/* True when decoded text is the tokens' bytes joined, invalid UTF-8 replaced. */
bool tk_is_bytewise(const TkTokenizer* tokenizer);

/* The bytes a token stands for, alive as long as the tokenizer; none when the id is not in use. */
typedef struct TkToken {
  const uint8_t* bytes;
  size_t len;
  bool special;
} TkToken;
TkToken tk_token(const TkTokenizer* tokenizer, uint32_t id);

/* False when no token is spelled like that. */
bool tk_token_to_id(const TkTokenizer* tokenizer, const char* token, size_t len, uint32_t* id);

typedef enum TkMode {
  TK_PLAIN = 0, /* no added token is recognised */
  TK_PARSE = 1, /* added tokens are recognised */
  TK_FRAME = 2 /* TK_PARSE, and the file's post-processor adds its tokens (bos, eos) */
} TkMode;

/* TK_INVALID when the text is not UTF-8. */
int tk_encode(const TkTokenizer* tokenizer, const char* text, size_t len, uint32_t mode, TkIds* out,
              TkText* error);

/* TK_PARSE for text in which the character `mark` stands inside spellings of special tokens that
 * must stay text. Other spellings become tokens; the marks themselves yield nothing. */
int tk_encode_marked(const TkTokenizer* tokenizer, const char* text, size_t len, uint32_t mark,
                     TkIds* out, TkText* error);

/* Ids that are not in use are passed over. */
int tk_decode(const TkTokenizer* tokenizer, const uint32_t* ids, size_t len, bool skip_special,
              TkText* out, TkText* error);

/* Chat template -------------------------------------------------------------------------------- */

typedef struct TkTemplate TkTemplate;

/* `name` stands for the template in messages. TK_INVALID with name and line. */
int tk_template_new(const char* source, size_t source_len, const char* name, size_t name_len,
                    TkTemplate** out, TkText* error);
void tk_template_free(TkTemplate* chat_template);

/* `context`: a JSON object (messages, tools, add_generation_prompt, bos_token, ...). TK_INVALID
 * with the template's own words when it raised, else with its line; TK_TOO_LARGE past its step
 * budget. */
int tk_template_render(const TkTemplate* chat_template, const char* context, size_t len,
                       TkText* out, TkText* error);

#ifdef __cplusplus
}
#endif
