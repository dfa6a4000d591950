// The door of api: wire <-> typed request and event, per endpoint; no sockets.
// Threads: POST handlers run on a request worker; GET handlers run on the I/O thread and must be
// quick, so /health answers while all workers are busy. A reply goes on as short tasks on workers,
// one at a time per request. A Response may be written from any one thread at a time. Adding an
// endpoint: endpoints/<name>.cpp and one ENTRY line in endpoints.def.
//
// Request fields (fields.cpp holds the table). Nothing is dropped in silence:
// - a field that is honoured is checked for type and range; a wrong one is a 400 naming it;
// - a field that cannot change the answer here (user, metadata, store, ...) is accepted and listed
// in the
//   response header x-tenon-ignored-fields;
// - a field whose feature this build lacks (tools, response_format, ...) is a 400 naming it, unless
// its value
//   is the one that means "off";
// - any other field is a 400 naming it. null is the same as absent everywhere.
// Seed: without one, 64 random bits are drawn. The seed used is the top-level field "seed" of the
// response object and of the first chunk of a stream, as an unsigned 64-bit integer; sent back, it
// repeats the reply.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/channel.h"
#include "base/json.h"
#include "base/result.h"
#include "engine/engine.h"

namespace tenon::api {

struct HttpRequest {
  std::string method;  // upper case
  std::string path;  // without query, percent-decoded; "/v1/models/x"
  std::string query;
  std::map<std::string, std::string> headers;  // names lower case; repeated ones joined with ", "
  std::string body;
  bool header(std::string_view name, std::string* value) const;
};

// Where a reply goes. Implemented by server over a socket and by tests over a string.
// Either one send(), or start() then write()s then finish().
class Response {
 public:
  virtual ~Response() = default;
  using Headers = std::vector<std::pair<std::string, std::string>>;
  virtual void send(int status, Headers headers, std::string body) = 0;
  virtual void start(int status, Headers headers) = 0;  // chunked
  // False: the client is gone or too slow (its buffer bound is reached); stop producing.
  virtual bool write(std::string chunk) = 0;
  virtual void finish() = 0;
  // Runs once, from any thread, when the client leaves before the reply ended. Set before start().
  virtual void on_disconnect(std::function<void()> callback) = 0;
};

// The request workers: a small pool running short tasks.
// Ending in order: server, engine.drain(), workers.stop(), engine destroyed, workers destroyed.
// Generations hold callbacks into the pool, so the pool dies last; handlers hold the engine, so
// they end before it.
class Workers {
 public:
  virtual ~Workers() = default;  // runs what post_more() left, then joins
  // A new request. False when the queue is full (overloaded) or the pool is stopping.
  virtual bool post(std::function<void()> task) = 0;
  // The next step of a request that was accepted: never refused, as each request has at most one
  // waiting.
  virtual void post_more(std::function<void()> task) = 0;
  // Refuses and drops new requests, and waits until those being handled are done.
  virtual void stop() = 0;
};
std::unique_ptr<Workers> make_workers(int threads, size_t queue_max);

struct Limits {
  size_t body_bytes_max = 64 << 20;
  int json_depth_max = 64;
  int json_keys_max = 1024;  // in one object
  size_t json_values_max = 1 << 19;
  int rows_max = 64;  // prompts x n of one request
  int stops_max = 16;
  size_t stop_bytes_max = 1024;  // each
  int n_max = 16;
  int prompts_max = 64;  // /v1/completions with a list
  int top_logprobs_max = 20;
  int64_t default_max_tokens = 0;  // 0: up to the window
};

struct Context {
  engine::Engine* engine = nullptr;  // outlives every request
  Workers* workers = nullptr;
  Limits limits;
  // Documented single-model mode: any name is served by the one model.
  bool single_model_alias = false;
};

// One route. Static lifetime; made by ENTRY in endpoints.def.
struct Endpoint {
  const char* method;
  const char* path;  // exact, or ending in "/*" for any rest that is not empty
  bool open;  // needs no API key
  void (*handle)(const Context&, HttpRequest, std::shared_ptr<Response>);
};
const std::vector<Endpoint>& endpoints();

struct Route {
  const Endpoint* endpoint = nullptr;  // null: nothing answers
  std::string allow;  // methods the path knows, "" when the path is unknown
};
Route find_route(std::string_view method, std::string_view path);  // HEAD finds GET

// Finds the endpoint and runs it, or answers 404/405 in the shape of the API that was called.
// Never throws; any exception inside becomes a 500 that names no path and no internals.
void dispatch(const Context& context, HttpRequest request, std::shared_ptr<Response> response);

// The one table from Code to HTTP status and OpenAI error type.
struct WireError {
  int status;
  const char* type;  // "invalid_request_error", ...
  const char* code;  // default machine code when the Error has no reason
};
WireError wire_error(Code code);
// OpenAI's error object: {"error":{"message","type","param","code"}}. Messages of internal and
// corrupt are replaced by a general one and logged, since they may name files of this machine.
std::string error_body(const Error& error);
void send_error(Response& response, const Error& error);
// Errors of HTTP itself, which no Code names: 401, 405, 415, 431 and so on.
std::string http_error_body(int status, std::string_view message, std::string_view code);
void send_http_error(Response& response, int status, std::string_view message,
                     std::string_view code, Response::Headers headers = {});

}  // namespace tenon::api
